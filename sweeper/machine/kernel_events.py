"""What the kernel recorded since a moment: kills for lack of memory, and errors of GPUs.

Two places are asked: the kernel's log (``/dev/kmsg``, else ``dmesg``), which is often
closed to ordinary users and to containers, and the counters of such kills, which are
not. What cannot be read is told as unknown: it never means that nothing happened.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_READ_ONCE = 8192  # one record of /dev/kmsg a read; longer ones are an error there
_MOST_RECORDS = 200_000  # more than any buffer of the kernel holds
_DMESG_SECONDS = 5.0

# "6,339,5140900,-;NVRM: Xid ...", with microseconds since the start of the machine.
_KMSG = re.compile(r"\d{1,10},\d{1,20},(\d{1,20}),[^;]{0,80};(.*)")
# "[ 1234.567890] NVRM: Xid ...", of dmesg; levels and host names may stand before.
_DMESG = re.compile(r"\[ {0,12}(\d{1,12}\.\d{1,9})\] ?(.*)")
_WANTED = re.compile(
    r"NVRM: Xid |fallen off the bus|oom-kill:|oom_reaper: |[Oo]ut of memory: Kill|invoked oom-killer"
)
_COUNTER = re.compile(r"^oom_kill (\d{1,20})$", re.MULTILINE)

ReadLog = Callable[[], Sequence[str]]
ReadText = Callable[[Path], str]


@dataclass(frozen=True)
class KernelMoment:
    """Where the kernel's records stood at a moment. None is what could not be read.

    Args:
        log_seconds: stamp of the newest record of its log, by the kernel's own clock.
        group_kills: processes of our control group killed for lack of memory so far.
        machine_kills: the same for the whole machine, other people's included.
    """

    log_seconds: float | None
    group_kills: int | None
    machine_kills: int | None


@dataclass(frozen=True)
class KernelEvents:
    """What happened since a moment.

    Args:
        records: kills for lack of memory and errors of GPUs, in the kernel's words or ours.
        unknown: what could not be looked at; empty when everything was.
    """

    records: tuple[str, ...]
    unknown: tuple[str, ...]


def read_kernel_log() -> Sequence[str]:
    """The kernel's log as ``/dev/kmsg`` or ``dmesg`` gives it.

    Raises:
        OSError: neither can be read here.
    """
    try:
        return _kmsg()
    except OSError:
        return _dmesg()


def read_text(path: Path) -> str:
    """A small file of the kernel's. Raises OSError when it cannot be read."""
    return path.read_text(encoding="utf-8", errors="replace")


def kernel_moment(
    read_log: ReadLog = read_kernel_log, read_file: ReadText = read_text
) -> KernelMoment:
    """The present moment, for :func:`kernel_events_since`.

    Args:
        read_log: gives the lines of the kernel's log, or raises OSError.
        read_file: gives the text of a file, or raises OSError.
    """
    records = _records(read_log)
    return KernelMoment(
        # An empty log is one that was read: everything in it later is new.
        log_seconds=None if records is None else max((at for at, _ in records), default=-1.0),
        group_kills=_group_kills(read_file),
        machine_kills=_machine_kills(read_file),
    )


def kernel_events_since(
    before: KernelMoment, read_log: ReadLog = read_kernel_log, read_file: ReadText = read_text
) -> KernelEvents:
    """What the kernel recorded since ``before``.

    The log is compared by its own stamps, never by our clock, which runs a little
    differently. Kills elsewhere on the machine count only where those of our own
    control group cannot be told.

    Args:
        before: what :func:`kernel_moment` gave then.
        read_log: gives the lines of the kernel's log, or raises OSError.
        read_file: gives the text of a file, or raises OSError.
    """
    found: list[str] = []
    unknown: list[str] = []
    records = _records(read_log)
    if records is None or before.log_seconds is None:
        unknown.append("the log of the kernel")
    else:
        since = before.log_seconds
        found += [text for at, text in records if at > since and _WANTED.search(text)]
    kills = _more(before.group_kills, _group_kills(read_file))
    where = "this control group"
    if kills is None:
        kills, where = _more(before.machine_kills, _machine_kills(read_file)), "this machine"
    if kills is None:
        unknown.append("the count of processes killed for lack of memory")
    elif kills:
        found.append(f"oom_kill: processes of {where} killed for lack of memory: {kills}")
    return KernelEvents(tuple(found), tuple(unknown))


def _more(before: int | None, now: int | None) -> int | None:
    # A counter that went back belongs to another group by now.
    return None if before is None or now is None or now < before else now - before


def _records(read_log: ReadLog) -> list[tuple[float, str]] | None:
    """Stamps in seconds, with texts; None for a log that cannot be read."""
    try:
        lines = read_log()
    except OSError:
        return None
    records = []
    for line in lines:
        if kmsg := _KMSG.match(line):
            records.append((int(kmsg[1]) / 1e6, kmsg[2].strip()))
        elif dmesg := _DMESG.search(line):
            records.append((float(dmesg[1]), dmesg[2].strip()))
    return records


def _group_kills(read_file: ReadText) -> int | None:
    """Of our own control group and those in it; only version 2 of control groups counts."""
    try:
        own = read_file(Path("/proc/self/cgroup"))
        path = next(line[3:] for line in own.splitlines() if line.startswith("0::"))
        text = read_file(Path("/sys/fs/cgroup", path.lstrip("/"), "memory.events"))
    except (OSError, StopIteration):
        return None
    return _count(text)


def _machine_kills(read_file: ReadText) -> int | None:
    try:
        return _count(read_file(Path("/proc/vmstat")))
    except OSError:
        return None


def _count(text: str) -> int | None:
    found = _COUNTER.search(text)
    return int(found[1]) if found else None


def _kmsg() -> Sequence[str]:
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    lines: list[str] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _READ_ONCE)
            except BlockingIOError:
                break  # that was the newest
            except BrokenPipeError:
                continue  # the oldest was overwritten while we read
            lines.append(record.decode(errors="replace").split("\n", 1)[0])
    finally:
        os.close(descriptor)
    return lines


def _dmesg() -> Sequence[str]:
    try:
        answer = subprocess.run(
            ["dmesg"],  # noqa: S607 - wherever the machine has it
            capture_output=True,
            check=True,
            timeout=_DMESG_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return answer.stdout.decode(errors="replace").splitlines()
