from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeper.engines.sglang.launch import flag, launch, tensor_parallel_auto, without_ray


def start(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "python": Path("/env/bin/python"),
        "model": "/models/m",
        "port": 1234,
        "served_name": "sweeper-a-1",
        "args": {},
        "env": {},
        "inherited": {"PATH": "/bin"},
        "device": "cuda",
    }
    return launch(**(given | changes))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("a", True, ["--a"]),
        ("a", False, []),
        ("a", 0, ["--a", "0"]),
        ("a", 1e-3, ["--a", "0.001"]),
        ("a", "x y; rm", ["--a", "x y; rm"]),
        ("a", [1, 2], ["--a", "1", "2"]),
        ("a", {"k": True}, ["--a", '{"k": true}']),
    ],
)
def test_flag(name: str, value: Any, words: list[str]) -> None:
    assert flag(name, value) == words


def test_nothing_of_the_cpu_platform_on_a_gpu() -> None:
    on_gpu = start()
    assert "SGLANG_PLATFORM" not in on_gpu.env
    assert "torch_native" not in on_gpu.command
    assert on_gpu.command[on_gpu.command.index("--host") + 1] == "127.0.0.1"


def test_on_a_cpu_the_file_wins_over_what_the_cpu_needs() -> None:
    on_cpu = start(device="cpu", args={"max-total-tokens": 4096, "tensor-parallel-size": 2})
    assert on_cpu.env["SGLANG_PLATFORM"] == "sweeper_cpu"
    assert on_cpu.env["SGLANG_CPU_OMP_THREADS_BIND"] == "0|1"
    assert on_cpu.command.count("--max-total-tokens") == 1
    assert on_cpu.command[on_cpu.command.index("--max-total-tokens") + 1] == "4096"


def test_the_space_wins_over_the_shell() -> None:
    assert (
        start(inherited={"NCCL_PROTO": "Simple"}, env={"NCCL_PROTO": "LL"}).env["NCCL_PROTO"]
        == "LL"
    )


def test_a_colon_in_the_name_is_refused() -> None:
    with pytest.raises(ValueError, match="colon"):
        start(served_name="a:b")


def test_what_ray_adds_is_taken_out() -> None:
    worker = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "RAY_JOB_ID": "1"}
    assert without_ray(worker, ["PATH", "HOME"]) == {"PATH": "/bin"}
    assert without_ray(worker, ["OMP_NUM_THREADS"]) == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("gpus", "heads", "kv_heads", "size"),
    [
        (0, 9, 3, 1),
        (1, 32, 8, 1),
        (8, 9, 3, 3),  # SmolLM2-135M
        (8, 32, 8, 8),
        (8, 64, 4, 8),  # fewer key-value heads than ranks
        (6, 32, 8, 4),
        (8, 7, 7, 7),
        (6, None, None, 4),
    ],
)
def test_tensor_parallel_auto(
    gpus: int, heads: int | None, kv_heads: int | None, size: int
) -> None:
    assert tensor_parallel_auto(gpus, heads, kv_heads) == size
