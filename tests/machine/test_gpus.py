"""What the driver says, and only what CUDA programs would see of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.machine.gpus import Gpu, gpus


class NvmlError(Exception):
    """Stands in for ``pynvml.NVMLError``."""


class Nvml:
    """A driver with some GPUs, of which the named questions fail."""

    NVMLError = NvmlError

    def __init__(self, count: int = 3, *failing: str) -> None:
        self.count = count
        self.failing = failing
        self.running = 0

    def _answer(self, question: str, value: Any) -> Any:
        if question in self.failing:
            raise NvmlError(question)
        assert self.running or question == "init"
        return value

    def nvmlInit(self) -> None:
        self._answer("init", None)
        self.running += 1

    def nvmlShutdown(self) -> None:
        self._answer("shutdown", None)
        self.running -= 1

    def nvmlDeviceGetCount(self) -> int:
        return int(self._answer("count", self.count))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._answer(f"handle {index}", SimpleNamespace(index=index))

    def nvmlDeviceGetName(self, handle: Any) -> Any:
        return self._answer("name", b"NVIDIA H200")

    def nvmlDeviceGetUUID(self, handle: Any) -> Any:
        return self._answer("uuid", f"GPU-{'abc'[handle.index % 3]}{handle.index}-1")

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        return self._answer("memory", SimpleNamespace(total=150 << 30))

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> Any:
        return self._answer("capability", (9, 0))

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._answer("driver", "580.1")


def test_all_fields() -> None:
    nvml = Nvml(1)
    assert gpus({}, nvml) == [Gpu(0, "NVIDIA H200", "GPU-a0-1", 150 << 30, "9.0", "580.1")]
    assert nvml.running == 0


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("name", "name"),
        ("uuid", "uuid"),
        ("memory", "memory_bytes"),
        ("capability", "compute_capability"),
        ("driver", "driver"),
    ],
)
def test_what_is_not_told_is_none(question: str, field: str) -> None:
    nvml = Nvml(1, question)
    (gpu,) = gpus({}, nvml)
    assert [name for name, value in vars(gpu).items() if value is None] == [field]
    assert nvml.running == 0


@pytest.mark.parametrize("nvml", [Nvml(3, "init"), Nvml(3, "count"), Nvml(0)])
def test_none_at_all(nvml: Nvml) -> None:
    assert gpus({}, nvml) == []
    assert nvml.running == 0


def test_a_gpu_that_is_lost() -> None:
    assert [gpu.index for gpu in gpus({}, Nvml(3, "handle 1", "shutdown"))] == [0, 2]


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("GPU-b1-1", [1]),
        ("GPU-c,0", [2, 0]),
        ("GPU-", []),  # the beginning of three
        ("0,7,1", [0]),  # CUDA stops at the first that is not there
        ("0,0", [0]),
    ],
)
def test_cuda_visible_devices(setting: str | None, seen: list[int]) -> None:
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert [gpu.index for gpu in gpus(environment, Nvml())] == seen


def test_our_own_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.index for gpu in gpus(nvml=Nvml())] == [1]


def test_the_real_driver_if_there_is_one() -> None:
    for gpu in gpus():
        assert gpu.name
