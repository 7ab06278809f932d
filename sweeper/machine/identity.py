"""Whose process it is and what it runs, as /proc tells."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """What /proc tells of a process."""

    user: str | None
    command: str | None
    uses_gpu: bool | None
    """It has a device of the driver open; None where that cannot be seen."""


def identity_of(pid: int) -> Identity | None:
    """What /proc tells of a process; None when there is none with this number."""
    folder = Path(f"/proc/{pid}")
    try:
        uid = folder.stat().st_uid
        words = folder.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    try:
        user: str | None = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Identity(user, short_command(words), _has_driver_open(folder))


def short_command(words: Sequence[str], longest: int = 40) -> str | None:
    """A command line in a few characters: the program and what it runs, without folders."""
    words = [word for word in words if word]
    if not words:
        return None
    first, *rest = words
    shown = [first if " " in first or "::" in first else Path(first).name]
    if rest[:1] == ["-m"]:
        shown += rest[:2]
    elif rest and not rest[0].startswith("-"):
        shown.append(Path(rest[0]).name)
    text = " ".join(shown)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _has_driver_open(folder: Path) -> bool | None:
    try:
        handles = list(folder.joinpath("fd").iterdir())
    except OSError:
        return None
    for handle in handles:
        try:
            if str(handle.readlink()).startswith("/dev/nvidia"):
                return True
        except OSError:
            continue
    return False
