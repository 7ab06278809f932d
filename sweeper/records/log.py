"""The append-only log: one JSON object a line, on disk before anything depends on it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from sweeper.errors import InputError
from sweeper.records.events import ADAPTER, AnyEvent, Event


class EventLog:
    """Appends to one file. Several processes of a machine may write to it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event) -> None:
        """Write ``event`` and return when it is on disk.

        A line that a crash cut short before ours is closed first, so that it
        spoils itself alone.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        line = event.model_dump_json(exclude_none=True).encode() + b"\n"
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(fd, line)
            os.fsync(fd)
        except OSError as error:
            # It should say which file; a write by descriptor does not know.
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            os.close(fd)  # gives the lock back too


def read_events(path: Path) -> Iterator[AnyEvent]:
    """Every event of the log, in order. Lines that a crash cut short are passed over.

    Raises:
        InputError: there is no log at ``path``.
    """
    yield from EventReader(path).new()


class EventReader:
    """Reads a log that is still growing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[AnyEvent]:
        """The events since the last call."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except OSError as error:
            why = "" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
            raise InputError(
                f"no record of a sweep here{why}",
                where=str(self._path),
                advice="Give the folder of a sweep, as printed by 'python -m sweeper run'.",
            ) from None
        complete = data.rfind(b"\n") + 1
        self._offset += complete
        for line in data[:complete].splitlines():
            if (event := _parse(line)) is not None:
                yield event


def _parse(line: bytes) -> AnyEvent | None:
    try:
        return ADAPTER.validate_python(json.loads(line))
    except (ValueError, ValidationError):
        return None  # cut short by a crash, or an event of a newer version
