"""Whether anything moves in a server that is starting: slow is not hung.

A 547 GB model was seen to load for 313 s in silence, and was killed as hung.
What tells the two apart is not time but movement: the log, the processor, reads
and writes of any kind, the GPU's memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.servers.tagged import ProcessRef

# What a process does that only waits: timers, heartbeats, a poll of a pipe.
IDLE_CPU = 0.01
"""Seconds of processor time a second, of all processes of the server together."""
IDLE_BYTES = 4096
"""Bytes a second that are read and written by a server that only waits."""
_LEAST_CPU = 0.05
_LEAST_BYTES = 65536
_LEAST_MEMORY = 1 << 20


@dataclass(frozen=True)
class Activity:
    """Counters of a server at one moment. Each only grows, but for the memory.

    Args:
        lines: how many lines its log has got, less those that only answer us.
        cpu: seconds of processor time by process.
        io: bytes that went through read and write calls, sockets and files alike, and
            bytes that page faults brought from a disk, by process.
        gpu_memory: bytes in use on its GPUs; empty where there are none or nobody can tell.
    """

    lines: int = 0
    cpu: Mapping[ProcessRef, float] = field(default_factory=dict)
    io: Mapping[ProcessRef, int] = field(default_factory=dict)
    gpu_memory: tuple[int, ...] = ()


def moved(before: Activity, after: Activity, seconds: float) -> str | None:
    """What moved between two moments ``seconds`` apart; None when nothing did.

    A process that began counts with all it did, one that ended with nothing.
    """
    if after.lines != before.lines:
        return "its log"
    if _grown(before.cpu, after.cpu) >= max(_LEAST_CPU, IDLE_CPU * seconds):
        return "the processor"
    if _grown(before.io, after.io) >= max(_LEAST_BYTES, IDLE_BYTES * seconds):
        return "reads and writes"
    if any(
        abs(now - then) >= _LEAST_MEMORY
        for then, now in zip(before.gpu_memory, after.gpu_memory, strict=False)
    ):
        return "GPU memory"
    return None


def _grown(before: Mapping[ProcessRef, float], after: Mapping[ProcessRef, float]) -> float:
    return sum(max(0.0, value - before.get(process, 0.0)) for process, value in after.items())


class StallWatch:
    """Since when nothing has moved. Knows no clock and no process."""

    def __init__(self, now: float, activity: Activity) -> None:
        self._since = now
        self._then = activity

    def still(self, now: float, activity: Activity) -> float:
        """Take a look; for how many seconds nothing has moved.

        The look is compared with the last one that showed movement, not with the
        one before: what creeps below the idle rate is no movement in sum either.
        """
        if moved(self._then, activity, now - self._since):
            self._since, self._then = now, activity
        return now - self._since


def look(processes: Iterable[ProcessRef], lines: int, gpu_memory: tuple[int, ...] = ()) -> Activity:
    """The counters now. What cannot be read, as of a process that just ended, is left out."""
    cpu: dict[ProcessRef, float] = {}
    io: dict[ProcessRef, int] = {}
    for process in processes:
        if (seconds := _cpu_seconds(process.pid)) is not None:
            cpu[process] = seconds
        if (count := _io_bytes(process.pid)) is not None:
            io[process] = count
    return Activity(lines, cpu, io, gpu_memory)


def _cpu_seconds(pid: int) -> float | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user, system


def _io_bytes(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None  # another user's, or gone
    counters = dict(line.split(": ") for line in lines)
    return sum(int(counters[name]) for name in ("rchar", "wchar", "read_bytes"))
