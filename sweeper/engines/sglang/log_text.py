"""The log of a server that failed, cut into what belongs together."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from sweeper.engines.sglang.failures import FailureTable

# "[2026-12-01 06:01:31.123 DP0 TP1] ", with no names of ranks where there is only one.
_STAMP = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?((?: [A-Z_]{2,12}\d{1,5}){0,8})\] ?", re.ASCII
)
# Printed by C++ or the kernel in between, whatever Python prints.
_FOREIGN = re.compile(r"\[rank\d{1,5}\]:|\S{1,80}:\d{1,9}:\d{1,9} \[\d{1,5}\] NCCL |NVRM: ")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(Error|Exception|Exit|Interrupt|Timeout)\b")

# A log may hold anything, and must not take long: what matters stands at the beginning of
# a line, in the first of the lines that alarm or in the last, and a traceback has an end.
_LONGEST_LINE = 4_000
_LONGEST_TRACEBACK = 400
_FIRST, _LAST = 2_000, 1_000


class Log:
    """The lines of all ranks, with the tracebacks in them and the stage that each was in.

    Args:
        lines: the log.
        table: what to look for.
    """

    def __init__(self, lines: Iterable[str], table: FailureTable) -> None:
        self.lines = list(_unglued(lines))
        #: Where SGLang began to end its own processes.
        self.end = len(self.lines)
        #: Where it printed that it is ready; -1 if it did not.
        self.ready = -1
        self._alarming: list[int] = []
        self._places: dict[str, list[tuple[int, str]]] = {}
        self._look_for(table)
        self._blocks = list(self._first_of_each())
        # A line in between may be somebody else's.
        self._ends = {start: index + 1 for index, start in enumerate(self._blocks)}
        self._texts: dict[int, str] = {}

    def alarming(self, after: int = -1) -> list[int]:
        """The lines in which a sign may be, behind a line."""
        found = self._alarming[bisect_left(self._alarming, after + 1) :]
        return found if len(found) <= _FIRST + _LAST else found[:_FIRST] + found[-_LAST:]

    def block(self, index: int) -> int:
        """The first line of the traceback that a line belongs to; itself if to none."""
        return self._blocks[index]

    def text(self, index: int) -> str:
        """The traceback that a line belongs to, or the line."""
        start = self._blocks[index]
        if start not in self._texts:
            self._texts[start] = "\n".join(self.lines[one] for one in self._inside(index))
        return self._texts[start]

    def message(self, index: int) -> tuple[bool, str]:
        """A line without its time and rank, and whether it had them."""
        stamp = _STAMP.match(self.lines[index])
        return bool(stamp), self.lines[index][stamp.end() if stamp else 0 :]

    def last_of_block(self, index: int) -> int:
        """The line with the last exception of the traceback; the line itself without one."""
        inside = reversed(self._inside(index))
        return next((one for one in inside if _EXCEPTION.match(self.lines[one])), index)

    def headline(self, index: int) -> str:
        """What a line says; for the head of a traceback, what its last exception says."""
        if _TRACEBACK in self.lines[index]:
            index = self.last_of_block(index)
        said = self.message(index)[1].strip()
        if said.endswith(":"):
            after = [self.lines[one].strip() for one in self._inside(index) if one > index]
            said = " ".join([said, *[line for line in after if line][:1]])
        return said

    def stage(self, index: int) -> str:
        """The stage that the rank which printed a line was in by then; empty if none was told."""
        told = [(-1, "")]
        for rank in {"", _rank(self.lines[index])}:
            places = self._places.get(rank, [])
            if before := bisect_left(places, (index, "")):
                told.append(places[before - 1])
        return max(told)[1]

    def _look_for(self, table: FailureTable) -> None:
        for index, line in enumerate(self.lines):
            small = line.lower()
            if not any(map(small.__contains__, table.words)):
                continue
            if any(pattern.search(line) for pattern in table.harmless):
                continue
            self._alarming.append(index)
            if self.end > index and table.ending.search(line):
                self.end = index
            for stage, pattern in table.places.items():
                if pattern.search(line):
                    self._places.setdefault(_rank(line), []).append((index, stage))
                    self.ready = index if stage == "ready" else self.ready

    def _first_of_each(self) -> Iterator[int]:
        current: int | None = None
        before = ""
        for index, line in enumerate(self.lines):
            stamped = _STAMP.match(line) is not None
            if _TRACEBACK in line:
                if current is None or stamped or not before.startswith(_CHAINED):
                    current = index
            elif stamped or (current is not None and index - current > _LONGEST_TRACEBACK):
                current = None
            yield index if current is None or _FOREIGN.match(line) else current
            before = line if line.strip() else before

    def _inside(self, index: int) -> list[int]:
        """All lines of the traceback that a line belongs to."""
        start = self._blocks[index]
        return [one for one in range(start, self._ends[start]) if self._blocks[one] == start]


def _unglued(lines: Iterable[str]) -> Iterator[str]:
    """One message a line: a progress bar and some libraries end theirs without a line end."""
    for whole in lines:
        line = whole[:_LONGEST_LINE]
        start = 0
        if line.find("[2", 1) > 0:
            for stamp in _STAMP.finditer(line, 1):
                yield line[start : stamp.start()]
                start = stamp.start()
        yield line[start:]


def _rank(line: str) -> str:
    stamp = _STAMP.match(line)
    return stamp.group(1).strip() if stamp else ""
