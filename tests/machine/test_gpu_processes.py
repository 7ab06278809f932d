"""Who uses the GPUs, from a driver that tells all, little or wrong numbers."""

from __future__ import annotations

import getpass
import os
from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.machine.gpu_processes import (
    GpuState,
    GpuUser,
    busy,
    gpu_states,
    memory_used,
    unexplained,
)
from sweeper.machine.identity import Identity, identity_of, short_command

GIB = 1 << 30
IDLE = 600 << 20


class NvmlError(Exception):
    """Stands in for ``pynvml.NVMLError``."""

    def __init__(self, value: int = 3) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """A driver with two GPUs; what is None here is not supported."""

    NVMLError = NvmlError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *processes: tuple[int, int, int | None], **answers: Any) -> None:
        self.processes = processes
        self.answers = {
            "used": (IDLE, IDLE),
            "reasons": 0,
            "ecc": 0,
            "rows": (0, 0, 0, 0),
        } | answers
        self.running = 0

    def nvmlInit(self) -> None:
        if self.answers.get("no_driver"):
            raise NvmlError
        self.running += 1

    def nvmlShutdown(self) -> None:
        self.running -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == self.answers.get("lost"):
            raise NvmlError(15)
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{'ab'[handle]}".encode()

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:
        if version is not None and self.answers.get("old"):
            raise NvmlError
        used = self.answers["used"][handle]
        if used is None:
            raise NvmlError
        return SimpleNamespace(used=used, total=140 * GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=used)
            for gpu, pid, used in self.processes
            if gpu == handle
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> Any:
        if self.answers.get("graphics") is None:
            raise NvmlError
        return self.nvmlDeviceGetComputeRunningProcesses(handle)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> Any:
        return self._or_error("reasons")

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> Any:
        return self._or_error("ecc")

    def nvmlDeviceGetRemappedRows(self, handle: int) -> Any:
        return self._or_error("rows")

    def _or_error(self, name: str) -> Any:
        if self.answers[name] is None:
            raise NvmlError
        return self.answers[name]


def alice(pid: int) -> Identity | None:
    """Every process below 1000 is hers; those above are not to be seen; 7 has no GPU open."""
    return Identity("alice", f"train {pid}", pid != 7) if pid < 1000 else None


def states(nvml: Nvml, **more: Any) -> list[GpuState]:
    found = gpu_states(nvml=nvml, identity=alice, **more)
    assert nvml.running == 0
    return found


def test_who_uses_what() -> None:
    nvml = Nvml((1, 5, 40 * GIB), (1, 6, 2 * GIB), used=(IDLE, 42 * GIB + IDLE))
    first, second = states(nvml, tag_of={6: "ours"}.get)
    assert (first.gpu, first.uuid, first.users) == (0, "GPU-a", ())
    assert second.users == (
        GpuUser(1, 5, "alice", "train 5", 40 * GIB),
        GpuUser(1, 6, "alice", "train 6", 2 * GIB, "ours"),
    )
    assert [user.ours for user in second.users] == [False, True]
    assert str(second.users[0]) == "GPU 1: 40.0 GiB, process 5 (alice, train 5)"


def test_a_process_is_named_once() -> None:
    (user,) = states(Nvml((0, 5, GIB), graphics=True, used=(GIB, 0)))[0].users
    assert user.memory_bytes == GIB


def test_memory_without_a_process_is_named() -> None:
    (hidden,) = states(Nvml(used=(30 * GIB, IDLE)))[0].users
    assert hidden == GpuUser(0, None, memory_bytes=30 * GIB)
    assert "cannot be seen" in str(hidden)


@pytest.mark.parametrize("pid", [7, 2000], ids=["has no GPU open", "not here"])
def test_a_number_of_the_host_names_nobody_else(pid: int) -> None:
    (hidden,) = states(Nvml((0, pid, 30 * GIB), used=(30 * GIB, IDLE)))[0].users
    assert hidden == GpuUser(0, None, memory_bytes=30 * GIB)


@pytest.mark.parametrize(
    ("used", "shares", "rest"),
    [
        (None, [], None),
        (IDLE, [], None),
        (30 * GIB, [29 * GIB + IDLE], None),
        (30 * GIB, [None], None),  # as under MIG: it may have all
        (30 * GIB, [10 * GIB, 5 * GIB], 15 * GIB),
    ],
)
def test_unexplained(used: int | None, shares: list[int | None], rest: int | None) -> None:
    found = unexplained(0, used, [GpuUser(0, 5, memory_bytes=share) for share in shares])
    assert (found.memory_bytes if found else None) == rest


def test_busy() -> None:
    nvml = Nvml((0, 5, GIB), (1, 6, GIB), used=(GIB, GIB))
    tags = {5: "ours", 6: "another"}.get

    def pids(*gpus: str, allowed: tuple[str, ...] = ()) -> list[int | None]:
        found = busy(gpus or None, allowed, tag_of=tags, nvml=nvml, identity=alice)
        return [user.pid for user in found]

    assert pids() == [5, 6]
    assert pids(allowed=("ours",)) == [6]
    assert pids("0") == [5]
    assert pids("GPU-b") == [6]
    assert pids("0", "1", allowed=("ours", "another")) == []
    assert pids("", "7") == []


def test_health() -> None:
    (state, _) = states(Nvml(reasons=0x40 | 0x04 | 0x01, ecc=3, rows=(1, 1, 1, 0)))
    assert state.slowed_by == ("too hot (hardware)",)
    assert (state.uncorrected_errors, state.needs_reset, state.lost) == (3, True, False)


def test_what_is_not_told_is_none() -> None:
    (state, _) = states(Nvml(reasons=None, ecc=None, rows=None, used=(None, None)))
    assert (state.uncorrected_errors, state.needs_reset, state.memory_used) == (None, None, None)
    assert (state.slowed_by, state.lost) == ((), False)


def test_a_gpu_that_fell_off_the_bus() -> None:
    first, second = states(Nvml(lost=0))
    assert first == GpuState(0, lost=True)
    assert not second.lost


def test_no_driver() -> None:
    nvml = Nvml(no_driver=True)
    assert states(nvml) == []
    assert busy(nvml=nvml) == []
    assert memory_used(nvml=nvml) == ()


def test_memory_used() -> None:
    nvml = Nvml(used=(5, 6), old=True)
    assert memory_used(nvml=nvml) == (5, 6)
    assert memory_used(["1"], nvml=nvml) == (6,)
    assert memory_used([], nvml=nvml) == ()
    assert memory_used(nvml=Nvml(used=(5, None))) == ()


def test_the_real_driver_if_there_is_one() -> None:
    assert all(state.memory_used is not None or state.lost for state in gpu_states())


def test_ourselves() -> None:
    who = identity_of(os.getpid())
    assert who is not None
    assert who.user == getpass.getuser()
    assert identity_of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ["/usr/bin/python3", "-m", "sglang.launch_server", "--port", "1"],
            "python3 -m sglang.launch_server",
        ),
        (["/usr/bin/python3", "/home/a/train.py", "--x"], "python3 train.py"),
        (["sglang::scheduler_TP0", ""], "sglang::scheduler_TP0"),
        (["vllm worker"], "vllm worker"),
        (["/bin/x", "--flag"], "x"),
        (["a" * 60], "a" * 37 + "..."),
        ([""], None),
    ],
)
def test_short_command(words: list[str], shown: str | None) -> None:
    assert short_command(words) == shown
