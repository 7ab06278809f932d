"""A folder of things that are built once and then only read.

Every entry is one directory. It appears under its name in a single step, when
it is complete, so whoever finds the name may use what is in it:

1. take the entry's lock file, so that no two processes build it;
2. remove what an interrupted build left behind;
3. build in a temporary directory beside the final one;
4. write the manifest, flush everything to the disk, rename.

A finished entry needs no lock and no write access to be read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.errors import MachineError

logger = logging.getLogger(__name__)

MANIFEST = "sweeper-manifest.json"
FORMAT = 1
"""Version of the manifest. It is part of every entry's name."""

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Recipe:
    """What an entry is made of.

    Args:
        name: start of the directory's name; letters, digits, dots and dashes.
        what: one line for people.
        source: everything that decides the content.
    """

    name: str
    what: str
    source: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> str:
        """Name of the entry.

        It depends on the source, so that two versions of Sweeper that share a
        cache never replace a model that a server of the other one reads.
        """
        text = json.dumps([FORMAT, dict(self.source)], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def cache_root() -> Path:
    """Return the folder of all entries, which need not exist yet.

    ``$SWEEPER_CACHE``, else ``$XDG_CACHE_HOME/sweeper``, else ``~/.cache/sweeper``.
    """
    if own := os.environ.get("SWEEPER_CACHE"):
        return Path(own).expanduser().absolute()
    # The XDG specification tells programs to ignore a relative path here.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "sweeper"


def models_folder() -> Path:
    """Return the folder in the cache that holds model directories."""
    return cache_root() / "models"


def find(folder: Path, recipe: Recipe) -> Path | None:
    """Return the finished entry of ``recipe`` in ``folder``, or None.

    Sizes are compared with the manifest, checksums are not: hashing some
    hundred megabytes would cost every start about a second.
    """
    entry = folder / recipe.directory
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["source"] != dict(recipe.source):
            return None
        for name, facts in manifest["files"].items():
            if (entry / name).stat().st_size != facts["bytes"]:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry


def build_once(
    folder: Path, recipe: Recipe, build: Callable[[Path], Mapping[str, str] | None]
) -> Path:
    """Return the entry of ``recipe``, after building it if it is not there.

    Args:
        folder: where entries live; created when missing.
        recipe: name, description and source of the entry.
        build: fills the empty directory that it is given. What it returns,
            such as versions of libraries, goes into the manifest.

    Raises:
        MachineError: the folder cannot be written, or the disk is full.
        Exception: whatever ``build`` raises; nothing stays behind then.
    """
    if entry := find(folder, recipe):
        return entry
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{recipe.directory}.lock", recipe):
            # Another process may have finished it while this one waited.
            return find(folder, recipe) or _build(folder, recipe, build)
    except OSError as error:
        raise MachineError(
            f"cannot build {recipe.what}: {error.strerror or error}",
            where=str(error.filename or folder),
            advice="Free some space there, or set SWEEPER_CACHE to a folder that can be written.",
        ) from error


def _build(folder: Path, recipe: Recipe, build: Callable[[Path], Mapping[str, str] | None]) -> Path:
    entry = folder / recipe.directory
    prefix = f".{recipe.directory}.building-"
    # The lock is held, so none of these belongs to a build that is running.
    for stale in folder.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        made_with = dict(build(temporary) or {})
        # mkdtemp and some libraries keep what they write to the owner.
        temporary.chmod(0o755)
        manifest = {
            "format": FORMAT,
            "what": recipe.what,
            "source": dict(recipe.source),
            "made_with": made_with,
            "files": _describe_files(temporary),
        }
        text = json.dumps(manifest, indent=2) + "\n"
        (temporary / MANIFEST).write_text(text, encoding="utf-8")
        _flush_tree(temporary)
        if entry.exists():
            # Damaged: find() has just refused it. Moved aside under a name
            # that this build cleans up, or the next one.
            entry.rename(Path(tempfile.mkdtemp(prefix=prefix, dir=folder)) / "old")
        temporary.rename(entry)
        _flush(folder)
    finally:
        for leftover in folder.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return entry


def _describe_files(directory: Path) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            name = path.relative_to(directory).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return files


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path, recipe: Recipe) -> Iterator[None]:
    # The kernel drops the lock when its holder dies, however it dies. The file
    # itself stays: removing it would let two processes lock different files.
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process that is building %s ...", recipe.what)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flush_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _flush(path)
    _flush(directory)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
