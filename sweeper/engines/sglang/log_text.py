"""The log of a server that failed, cut into what belongs together."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sweeper.engines.sglang.failures import FailureTable

# "[2026-12-01 06:01:31.123 DP0 TP1] ", with nothing between the brackets for a single rank.
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?((?: [A-Z_]{2,12}\d{1,5}){0,8})\] ?")
# Printed by C++ in between, whatever Python prints.
_FOREIGN = re.compile(r"\[rank\d+\]:|\S{1,80}:\d+:\d+ \[\d+\] NCCL |NVRM: ")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Timeout)\b")
# A line may be anything; what matters stands at its beginning.
_LONGEST_LINE = 20_000


class Log:
    """The lines of all ranks, with the tracebacks in them and the stage that each was in.

    Args:
        lines: the log.
        table: what to look for.
    """

    def __init__(self, lines: Sequence[str], table: FailureTable) -> None:
        self.lines = list(_unglued(lines))
        self.end = len(self.lines)
        self.ready = -1
        self.suspicious: list[int] = []
        self._places: dict[str, list[tuple[int, str]]] = {}
        self._find(table)
        self._blocks = list(self._block_of_each())

    def block(self, index: int) -> int:
        """The first line of the traceback that a line belongs to; itself if to none."""
        return self._blocks[index]

    def text(self, index: int) -> str:
        """The traceback that a line belongs to, or the line."""
        return "\n".join(self.lines[self._blocks[index] : self._end_of_block(index)])

    def last_of_block(self, index: int) -> int:
        """The line with the last exception of the traceback; the line itself without one."""
        inside = range(self._end_of_block(index) - 1, self._blocks[index] - 1, -1)
        return next((one for one in inside if _EXCEPTION.search(self.lines[one])), index)

    def headline(self, index: int) -> str:
        """What a line says; for the head of a traceback, what its last exception says."""
        if _TRACEBACK in self.lines[index]:
            index = self.last_of_block(index)
        said = _STAMP.sub("", self.lines[index], count=1).strip()
        if said.endswith(":"):
            after = self.lines[index + 1 : self._end_of_block(index)]
            said = " ".join([said, *[line.strip() for line in after if line.strip()][:1]])
        return said

    def stage(self, index: int) -> str:
        """The stage that the rank which printed a line was in by then; empty if none was told."""
        told = [("", -1)]
        for rank in {"", _rank(self.lines[index])}:
            places = self._places.get(rank, [])
            if before := bisect_left(places, (index, "")):
                position, stage = places[before - 1]
                told.append((stage, position))
        return max(told, key=lambda one: one[1])[0]

    def _find(self, table: FailureTable) -> None:
        signs = [sign.line for failure in table.failure for sign in failure.sign if sign.line]
        harmless, alarming = _any_of(table.harmless), _any_of(signs)
        entering = _any_of(table.places.values())
        for index, line in enumerate(self.lines):
            if harmless.search(line):
                continue
            if alarming.search(line):
                self.suspicious.append(index)
            if self.end > index and table.ending.search(line):
                self.end = index
            if entering.search(line):
                for stage, pattern in table.places.items():
                    if pattern.search(line):
                        self._places.setdefault(_rank(line), []).append((index, stage))
                        self.ready = index if stage == "ready" else self.ready

    def _block_of_each(self) -> Iterable[int]:
        current: int | None = None
        before = ""
        for index, line in enumerate(self.lines):
            stamped = _STAMP.match(line) is not None
            if _TRACEBACK in line:
                if current is None or stamped or not before.startswith(_CHAINED):
                    current = index
            elif stamped:
                current = None
            if current is None or _FOREIGN.match(line):
                yield index
            else:
                yield current
            before = line if line.strip() else before

    def _end_of_block(self, index: int) -> int:
        """One behind the last line of the traceback."""
        start = self._blocks[index]
        end = index + 1
        while end < len(self.lines) and self._blocks[end] == start:
            end += 1
        return end


def _unglued(lines: Iterable[str]) -> Iterable[str]:
    """One message a line: a progress bar and some libraries end theirs without a line end."""
    for line in lines:
        line = line[:_LONGEST_LINE]
        start = 0
        if line.find("[2", 1) > 0:
            for stamp in _STAMP.finditer(line, 1):
                yield line[start : stamp.start()]
                start = stamp.start()
        yield line[start:]


def _rank(line: str) -> str:
    stamp = _STAMP.match(line)
    return stamp.group(1).strip() if stamp else ""


def _any_of(patterns: Iterable[re.Pattern[str]]) -> re.Pattern[str]:
    texts = dict.fromkeys(pattern.pattern for pattern in patterns)
    return re.compile("|".join(f"(?:{text})" for text in texts))
