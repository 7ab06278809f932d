"""Writing a file so that a reader sees the old text or the new, never half of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from sweeper.errors import MachineError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's text in one step, on disk before this returns; mode 0644.

    Raises:
        MachineError: when the folder does not exist or cannot be written.
    """
    try:
        _replace(path, text.encode())
    except OSError as error:
        raise MachineError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            advice="Choose a folder that exists, has room and that you may write to.",
        ) from error


def _replace(path: Path, data: bytes) -> None:
    # In the same folder, since a rename is atomic only within one file system.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # mkstemp gives 0600, which a service manager's other users cannot read.
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a loss of power, which the file's own fsync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
