"""The image: sound, and of the SGLang that the package is tested with."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_passes_hadolint() -> None:
    beside = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=beside) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_the_version_that_the_package_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    engine = project["optional-dependencies"]["engine"]
    pinned = next(each for each in engine if each.startswith("sglang=="))
    tag = re.search(r"^ARG SGLANG_IMAGE=lmsysorg/sglang:v(\S+)$", DOCKERFILE, re.MULTILINE)
    assert tag is not None
    assert pinned == f"sglang=={tag[1]}"


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert rules[0] == "*"
    assert allowed == copied
    for private in (".git", ".venv", "results", ".env"):
        assert not any(fnmatch.fnmatch(private, pattern) for pattern in allowed)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("torch==2.14.1+cu130", True),
        ("flashinfer-python==0.7.2", True),
        ("sglang==0.5.5.post3", True),
        ("triton==3.8.0rc1", True),
        ("devscripts==2.22.1ubuntu1", False),
    ],
)
def test_the_constraints_hold_every_version_that_pip_can_parse(line: str, kept: bool) -> None:
    pattern = re.search(r"grep -E '([^']+)'", DOCKERFILE)
    assert pattern is not None
    command = ["/usr/bin/env", "grep", "-E", pattern[1]]
    done = subprocess.run(command, input=line, capture_output=True, text=True)
    assert bool(done.stdout) is kept
