"""The processes of one server, found through /proc and never by name.

A process belongs to a server when its environment carries the server's tag, or
when it is in the session that the server was started in. Both are asked for:
a program that rewrites its title (SGLang's schedulers do) may overwrite the
memory that shows its environment, and a program that starts a session of its
own keeps the tag.
"""

from __future__ import annotations

import os
import signal
import time
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

    def signal(self, number: int) -> None:
        """Send a signal, unless the process is gone or its number was reused."""
        if _started(self.pid) == self.started:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def find(tag: str, session: int | None = None) -> list[ProcessRef]:
    """Every living process that carries ``tag`` or is in ``session``, ourselves excepted.

    Zombies are left out: they hold no memory, no port and no GPU.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            started = _started(pid)
            if started is not None and (_session(pid) == session or _has_tag(pid, tag)):
                found.append(ProcessRef(pid, started))
    return found


def end(tag: str, session: int | None, *, grace: float) -> int:
    """End every process of a server: TERM, wait up to ``grace`` seconds, KILL.

    Returns:
        how many had to be killed.

    Raises:
        TimeoutError: some survived even that for five seconds, as a process
            does that hangs inside the kernel.
    """
    for process in find(tag, session):
        process.signal(signal.SIGTERM)
    if _gone(tag, session, within=grace):
        return 0
    killed: set[ProcessRef] = set()
    deadline = time.monotonic() + 5
    while left := find(tag, session):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in left]} do not end")
        for process in left:
            process.signal(signal.SIGKILL)
        killed.update(left)
        time.sleep(0.02)
    return len(killed)


def _gone(tag: str, session: int | None, *, within: float) -> bool:
    deadline = time.monotonic() + within
    while find(tag, session):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None for no process or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name may hold spaces and brackets
    return None if fields[0] in "ZX" else fields


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields else -1


def _has_tag(pid: int, tag: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return f"{TAG}={tag}".encode() in environ.split(b"\0")
