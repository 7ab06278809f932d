from __future__ import annotations

import getpass
import importlib.metadata
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.machine import facts
from sweeper.machine.gpus import Gpu


def test_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = Gpu(0, "NVIDIA H200", "GPU-a", 150 << 30, "9.0", "580.1")
    monkeypatch.setattr(facts, "gpus", lambda: [gpu])
    for name in facts.SHELL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", "/hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    found = facts.environment({"sglang": "0.5.23", "python": "3.12.0"})
    assert found["working_directory"] == str(tmp_path)
    assert found["kernel"] == platform.release()
    assert found["cpu"]["logical"] >= found["cpu"]["usable"] >= 1
    assert found["memory_bytes"] > 1 << 28
    assert found["host"]
    assert found["user"]
    assert found["gpus"][0]["compute_capability"] == "9.0"
    assert found["driver"] == "580.1"
    assert found["versions"] == {
        "sglang": "0.5.23",
        "engine_python": "3.12.0",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("sweeper", "ray", "optuna")},
    }
    assert found["shell"] == {"HF_HOME": "/hub", "HF_HUB_OFFLINE": ""}
    assert "hf_secret" not in json.dumps(found)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "gpus", list)
    found = facts.environment({})
    assert found["gpus"] == []
    assert found["driver"] is None


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", no_name)
    assert facts.environment({})["user"].isdigit()


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor : 0\nmodel name\t: AMD EPYC 9654\nmodel name\t: two\n", "AMD EPYC 9654"),
        ("processor : 0\nCPU part : 0xd40\n", None),
        (None, None),
    ],
)
def test_cpu_model(text: str | None, model: str | None, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert facts._cpu_model(path) == model


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, sweeper.machine.facts as f; f.environment({});"
        "print({'ray', 'optuna', 'torch', 'sglang', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
