"""What goes wrong in the engine's interpreter is told in plain words."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from sweeper.errors import MachineError
from sweeper.models.engine_script import last_lines, run_engine_script


def fake_python(folder: Path, body: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_versions_are_the_last_line(tmp_path: Path) -> None:
    python = fake_python(tmp_path, """echo noise; echo '{"torch": "2.0"}'""")
    assert run_engine_script(python, "make_tiny.py", what="try") == {"torch": "2.0"}


def test_script_sees_no_gpu_and_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLATFORM", "sweeper_cpu")
    python = fake_python(
        tmp_path,
        """echo "{\\"a\\": \\"$HF_HUB_OFFLINE/$CUDA_VISIBLE_DEVICES/$SGLANG_PLATFORM\\"}" """,
    )
    assert run_engine_script(python, "make_tiny.py", what="try") == {"a": "1//"}


def test_missing_libraries_name_the_extra(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "echo gguf accelerate >&2; exit 3")
    with pytest.raises(MachineError, match="lacks gguf, accelerate") as caught:
        run_engine_script(python, "convert_gguf.py", what="convert the model")
    assert "sweeper[engine]" in str(caught.value)


@pytest.mark.parametrize("script", ["convert_gguf.py", "make_tiny.py"])
def test_bare_interpreter_is_found_out_before_any_work(script: str, tmp_path: Path) -> None:
    """The real scripts, in an interpreter that has only the standard library."""
    python = fake_python(tmp_path, f'exec "{sys.executable}" -I -S "$@"')
    with pytest.raises(MachineError, match=r"lacks .*torch"):
        run_engine_script(python, script, "--check", what="try")


def test_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be started") as caught:
        run_engine_script(tmp_path / "none", "make_tiny.py", what="try")
    assert str(tmp_path / "none") in str(caught.value)


def test_failure_shows_the_last_lines(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 1")
    with pytest.raises(MachineError, match="exit status 1") as caught:
        run_engine_script(python, "make_tiny.py", what="try")
    assert "line 7" in str(caught.value)
    assert "line 2" not in str(caught.value)


def test_too_slow(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "exec sleep 60")
    with pytest.raises(MachineError, match="more than 0 s"):
        run_engine_script(python, "make_tiny.py", what="try", timeout=0.2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a\nb\nc\n", "b\nc"),
        ("a\n\n  \nb\n\n", "a\nb"),
        ("10%\r50%\r100% done\nend", "100% done\nend"),
    ],
)
def test_last_lines(text: str, expected: str) -> None:
    assert last_lines(text, 2) == expected


def test_environment_is_not_changed(tmp_path: Path) -> None:
    before = dict(os.environ)
    run_engine_script(fake_python(tmp_path, "echo '{}'"), "make_tiny.py", what="try")
    assert dict(os.environ) == before
