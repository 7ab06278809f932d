"""The processes of this machine as /proc shows them, and which carry a tag.

A process belongs to a server when its environment carries the server's tag,
when it is in the session that the server was started in, or when its parent
belongs to it. All three are asked for: a program that rewrites its title
(SGLang's schedulers do) may overwrite the memory that shows its environment, a
program that starts a session of its own keeps the tag, and one that does both is
still the child of its parent. Never by name: other servers have the same.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

TAG = "SWEEPER_SERVER"
"""The variable that marks every process of a server; its value is unique."""


@dataclass(frozen=True)
class ProcessRef:
    """A process, told apart from a later one with the same number.

    Args:
        pid: its number.
        started: start time in clock ticks since boot, field 22 of /proc/PID/stat.
    """

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether it runs. A zombie does not."""
        entry = look_at(self.pid)
        return entry is not None and entry.ref == self and not entry.zombie

    def signal(self, number: int) -> None:
        """Send a signal, unless the process is gone, or its number reused, or not ours to end."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except OSError:
            handle = None  # a kernel without such handles, as gVisor
        try:
            # What the handle means cannot change between the look and the signal.
            if not self.alive():
                return
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return
        finally:
            if handle is not None:
                os.close(handle)


@dataclass(frozen=True)
class Entry:
    """One line of the process table.

    Args:
        ref: the process.
        parent: number of its parent.
        session: number of its session, which is that of the session's first process.
        zombie: it ended, and nobody has asked for its exit status yet. It holds no
            memory, no port and no GPU, but its number is not given to another.
    """

    ref: ProcessRef
    parent: int
    session: int
    zombie: bool = False


Table = Mapping[int, Entry]


def look_at(pid: int) -> Entry | None:
    """What /proc says of one process; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name may hold spaces and brackets
    return Entry(
        ref=ProcessRef(pid, int(fields[19])),
        parent=int(fields[1]),
        session=int(fields[3]),
        zombie=fields[0] in "ZX",
    )


def table() -> Table:
    """Every process of this machine."""
    return {pid: entry for pid in all_pids() if (entry := look_at(pid)) is not None}


def all_pids() -> list[int]:
    """Numbers of all processes that we may see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def relatives(
    processes: Table,
    known: Collection[ProcessRef],
    session: int | None,
    has_tag: Callable[[int], bool],
) -> set[ProcessRef]:
    """The living processes of a server.

    Args:
        processes: the process table.
        known: those that were seen to belong to it; the dead among them are left out.
        session: the session that it was started in, if that is still its own.
        has_tag: whether a process carries the tag.
    """
    living = {entry.ref: entry for entry in processes.values() if not entry.zombie}
    members = {
        ref
        for ref, entry in living.items()
        if ref in known or entry.session == session or has_tag(ref.pid)
    }
    while children := _children(living, members):
        members |= children
    return members


def _children(living: Mapping[ProcessRef, Entry], members: set[ProcessRef]) -> set[ProcessRef]:
    pids = {ref.pid for ref in members}
    return {ref for ref, entry in living.items() if entry.parent in pids} - members


def find(tag: str, session: int | None = None) -> list[ProcessRef]:
    """Every living process that carries ``tag`` or is in ``session``, ourselves excepted."""
    found = relatives(table(), (), session, lambda pid: has_tag(pid, tag))
    return sorted((ref for ref in found if ref.pid != os.getpid()), key=lambda ref: ref.pid)


def end(tag: str, session: int | None, *, grace: float) -> int:
    """End every process of a server: TERM, wait up to ``grace`` seconds, KILL.

    Returns:
        how many had to be killed.

    Raises:
        TimeoutError: some survived even that for five seconds, as a process
            does that hangs inside the kernel.
    """
    from sweeper.servers.ending import end_processes

    killed, left = end_processes(lambda: find(tag, session), grace=grace)
    if left:
        raise TimeoutError(f"processes {[ref.pid for ref in left]} do not end")
    return killed


def has_tag(pid: int, tag: str) -> bool:
    """Whether the environment of a process carries this tag."""
    return f"{TAG}={tag}".encode() in environment(pid)


def tag_of(pid: int) -> str | None:
    """The tag that a process carries; None where there is none, or it cannot be read."""
    start = f"{TAG}=".encode()
    values = [word[len(start) :] for word in environment(pid) if word.startswith(start)]
    return values[0].decode(errors="replace") if values else None


def environment(pid: int) -> list[bytes]:
    """``NAME=value`` of a process as it was started; empty where that cannot be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended, or belongs to someone else


def wait_until(condition: Callable[[], bool], seconds: float, *, every: float = 0.02) -> bool:
    """Whether ``condition`` came true within ``seconds``. It is asked at least once."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True
