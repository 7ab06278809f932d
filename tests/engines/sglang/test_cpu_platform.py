"""The CPU platform is there for who asks for it, and for nobody else."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

from sweeper.engines.sglang.cpu_platform import PLATFORM, activate


@pytest.mark.parametrize(
    ("variable", "active"),
    [(None, False), ("", False), ("another", False), ("sweeper_cpu2", False), (PLATFORM, True)],
)
def test_answers_only_to_its_name(
    variable: str | None, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    if variable is not None:
        monkeypatch.setenv("SGLANG_PLATFORM", variable)
    assert (activate() is not None) == active


def test_entry_point_has_the_name_of_the_constant() -> None:
    (entry,) = importlib.metadata.entry_points(group="sglang.srt.platforms", name=PLATFORM)
    assert entry.load() is activate


def test_import_is_light() -> None:
    code = (
        "import sys, sweeper.engines.sglang.cpu_platform;"
        "print({'torch', 'sglang', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


_ASK_SGLANG = """
from sglang.srt.platforms import current_platform as platform
print(type(platform).__module__, type(platform).__name__, platform.is_out_of_tree())
"""


def _ask_sglang(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _ASK_SGLANG],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.engine
def test_sglang_takes_the_platform_only_when_told() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "SGLANG_PLATFORM"}
    module = "sweeper.engines.sglang.cpu_platform_class"
    chosen = _ask_sglang({**environment, "SGLANG_PLATFORM": PLATFORM})
    assert chosen == f"{module} CpuPlatform True"
    assert module not in _ask_sglang(environment)


@pytest.mark.engine
def test_sglang_reads_the_answers_of_the_class() -> None:
    code = """
from sglang.srt.platforms import current_platform as platform
assert platform.get_default_attention_backend() == "torch_native"
assert platform.get_dispatch_key_name() == "native"
assert platform.get_torch_distributed_backend_str() == "gloo"
assert platform.is_pin_memory_available() is False
assert platform.get_device_total_memory() > 0
platform.init_backend()
import torch
def refuse(graph, inputs): raise AssertionError("compiled")
@torch.compile(backend=refuse)
def double(x): return 2 * x
assert double(torch.ones(1)).item() == 2
"""
    environment = {**os.environ, "SGLANG_PLATFORM": PLATFORM}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
