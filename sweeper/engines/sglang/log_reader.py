"""SGLang's log as lines, read while it grows.

Both streams of the server and of its children go into one file, so lines of
the logger stand among progress bars that end with a carriage return, warnings
of Python, and words of C++ libraries that have no line end at all.

A log is for people who wait, never for a decision: a server is ready when it
answered a request (:mod:`sweeper.servers.readiness`), whatever its log says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from sweeper.engines.sglang.log_patterns import LogPatterns, log_patterns

_BLOCK = 1 << 20
# The longest line of a start, with all settings in it, has some 20,000 bytes.
_LONGEST_LINE = 1 << 18
_LINE_END = re.compile(rb"[\r\n]")


@dataclass(frozen=True)
class LogLine:
    """One line of a log.

    Args:
        text: all of it, as printed. Bytes that are no UTF-8 are written ``\\xff``.
        rank: the tags of who printed it, such as ``TP0`` or ``DP1 TP3``; empty where there are none.
        timestamp: when, in the server's local time, or None.
        stage: of the start, where the line tells of one.
        progress: how much is done and out of how much, where the line is a progress bar.
    """

    text: str
    rank: str = ""
    timestamp: datetime | None = None
    stage: str | None = None
    progress: tuple[int, int] | None = None


class LogReader:
    """Reads a growing log. Each line comes once; none is left out but empty ones.

    A line longer than 256 KiB comes in pieces, so that a log without line ends
    does not fill the memory.

    Args:
        path: the log, which need not exist yet. If it is emptied or replaced
            by another file, that is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = _Pieces()
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def read(self) -> list[LogLine]:
        """What was appended since the last call, in whole lines.

        Raises:
            OSError: the log is there and cannot be read.
        """
        try:
            stream = self._path.open("rb")
        except FileNotFoundError:
            return []
        lines: list[LogLine] = []
        with stream:
            facts = os.fstat(stream.fileno())
            file = facts.st_dev, facts.st_ino
            if self._file not in (None, file) or facts.st_size < self._offset:
                lines += lines_of(self._pieces.end())
                self._offset = 0
            self._file = file
            stream.seek(self._offset)
            while block := stream.read(_BLOCK):
                self._offset += len(block)
                for piece in self._pieces.take(block):
                    lines += lines_of(piece)
        return lines

    def unfinished(self) -> list[LogLine]:
        """What was read and has no line end yet; it comes again when it has one.

        The newest state of a progress bar is here, since each state ends when
        the next one comes; so are the last words of a process that was killed.
        """
        return list(lines_of(self._pieces.rest))


def lines_of(piece: bytes, patterns: LogPatterns | None = None) -> Iterator[LogLine]:
    """The lines of what stands between two line ends; none where that is nothing.

    There are several where the logger wrote behind words without a line end.
    """
    patterns = patterns or log_patterns()
    # Nothing is lost: bytes that are no text stay readable, and different ones differ.
    text = piece.decode(errors="backslashreplace")
    begins = [match.start() for match in patterns.prefix.finditer(text)]
    cuts = [0, *(begin for begin in begins if begin > 0), len(text)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield _line(text[begin:end], patterns)


def _line(text: str, patterns: LogPatterns) -> LogLine:
    prefix = patterns.prefix.match(text)
    return LogLine(
        text=text,
        rank=prefix["rank"].strip() if prefix else "",
        timestamp=_time(prefix["time"]) if prefix else None,
        stage=_stage(text, patterns),
        progress=_progress(text, patterns),
    )


def _stage(text: str, patterns: LogPatterns) -> str | None:
    # The furthest one, for a line that holds the words of two.
    for name, pattern in reversed(patterns.stages.items()):
        if pattern.search(text):
            return name
    return None


def _progress(text: str, patterns: LogPatterns) -> tuple[int, int] | None:
    # The last one, where several states of a bar are glued together.
    found = None
    for match in patterns.counts.finditer(text):
        found = int(match["done"]), int(match["total"])
    return found


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class _Pieces:
    """Cuts a stream of bytes at line ends, and lines that are too long at their limit.

    Where it is cut depends on the bytes alone, not on the blocks they come in.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """What has no end yet."""
        return bytes(self._rest)

    def take(self, block: bytes) -> Iterator[bytes]:
        """The pieces that end in this block."""
        begin = 0
        while begin < len(block):
            room = _LONGEST_LINE - len(self._rest)
            if end := _LINE_END.search(block, begin, begin + room):
                self._rest += block[begin : end.start()]
                begin = end.end()
                yield self.end()
            elif len(block) - begin >= room:
                self._rest += block[begin : begin + room]
                begin += room
                yield self._cut()
            else:
                self._rest += block[begin:]
                begin = len(block)

    def end(self) -> bytes:
        """The rest, as if a line end had come."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def _cut(self) -> bytes:
        # Not within a character: the bytes after its first begin with the bits 10.
        at = len(self._rest)
        for back in range(1, 4):
            if self._rest[-back] & 0b1100_0000 == 0b1100_0000:
                at -= back
                break
            if self._rest[-back] & 0b1000_0000 == 0:
                break
        kept = bytes(self._rest[at:])
        piece = bytes(self._rest[:at])
        self._rest[:] = kept
        return piece
