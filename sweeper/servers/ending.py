"""The end of a server, and the proof that nothing of it is left.

Processes first: TERM, wait, KILL. Then what outlives processes: ports, GPU
memory, shared memory, temporary files. Whoever ends a server goes this way: its
owner, the watcher of a dead owner, the sweep at its end, the doctor.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.servers import scratch, shared_memory
from sweeper.servers.family import Family
from sweeper.servers.tagged import ProcessRef, wait_until

GRACE = 10.0
"""Seconds that a server gets to end by itself. SGLang drains in 2 to 5 s when idle."""
REST = 0.5
"""Seconds for what the first process left behind: it has nothing to drain."""
KILL_LIMIT = 5.0
"""Seconds after which a process that survives KILL is given up: it hangs in the kernel."""


@dataclass(frozen=True)
class Stopped:
    """How a server ended, and what was verified.

    Args:
        seconds: from the request to the last proof.
        killed: processes that TERM did not end.
        exit_status: of the first process; negative is a signal; None when it was
            not our child or did not end.
        left: numbers of processes that not even KILL ended.
        port_free: its ports can be used again; None when none were named.
        gpu_memory_back: its GPUs hold no more than before; None without a GPU.
        removed: files and folders that it had left.
        problems: what is not as it should be, in words; empty when all is well.
    """

    seconds: float
    killed: int = 0
    exit_status: int | None = None
    left: tuple[int, ...] = ()
    port_free: bool | None = None
    gpu_memory_back: bool | None = None
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def clean(self) -> bool:
        """Nothing is left, as far as it could be verified."""
        return not self.problems


def end_processes(
    living: Callable[[], Sequence[ProcessRef]],
    *,
    grace: float,
    leader: ProcessRef | None = None,
    rest: float = REST,
) -> tuple[int, list[ProcessRef]]:
    """TERM, wait, KILL.

    With a leader, TERM goes to it alone: it ends its children in the order that
    it needs, whereas a rank that ends first is an accident to all others. What is
    there after the leader gets TERM too, and KILL ``rest`` seconds later.

    Args:
        living: looks for the processes of the server.
        grace: seconds between TERM and KILL.
        leader: the first process.
        rest: seconds for what the leader left.

    Returns:
        how many had to be killed, and those that not even that ended.
    """
    members = living()
    if leader is not None and grace > 0:
        leader.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while leader.alive() and time.monotonic() < deadline:
            wait_until(lambda: not leader.alive(), 0.25)
            # New children are seen while they are children, and known when they are not.
            members = living()
        grace = rest if not leader.alive() else 0.0
    if members and grace > 0:
        _signal(members, signal.SIGTERM)
        wait_until(lambda: not any(ref.alive() for ref in members), grace)
        members = living()
    return _kill(living, members)


def _kill(
    living: Callable[[], Sequence[ProcessRef]], members: Sequence[ProcessRef]
) -> tuple[int, list[ProcessRef]]:
    killed: set[ProcessRef] = set()
    deadline = time.monotonic() + KILL_LIMIT
    while members and time.monotonic() < deadline:
        _signal(members, signal.SIGKILL)
        killed.update(members)
        wait_until(lambda now=members: not any(ref.alive() for ref in now), 0.5)  # type: ignore[misc]
        members = living()  # once more: they may have started others meanwhile
    return len(killed), list(members)


def _signal(members: Sequence[ProcessRef], number: int) -> None:
    for ref in members:
        ref.signal(number)


def remove_files(
    folder: Path, shared: set[str], before: frozenset[shared_memory.Identity]
) -> tuple[list[str], list[str]]:
    """Remove shared memory and scratch folder of a server without processes."""
    removed, problems = shared_memory.remove(shared, before)
    more_removed, more_problems = scratch.remove(folder)
    return removed + more_removed, problems + more_problems


def end_left_behind(
    tag: str,
    *,
    folder: Path | None = None,
    leader: ProcessRef | None = None,
    grace: float = 1.0,
) -> Stopped:
    """End a server whose owner is gone, by what its tag and its scratch folder tell.

    Args:
        tag: of the server.
        folder: its scratch folder; by default where it should be.
        leader: its first process, where that is known by another way.
        grace: seconds between TERM and KILL.
    """
    begin = time.monotonic()
    folder = scratch.path_of(tag) if folder is None else folder
    note = scratch.read(folder)
    if note is not None and note.tag != tag:
        note = None
    known = _of_this_boot(note)
    leader = leader or (note.leader if note and known else None)
    family = Family(tag, leader, known)
    shared = set(note.shared) if note else set()
    shared |= shared_memory.shared_memory_of(family.living())
    killed, left = end_processes(family.living, grace=grace, leader=leader)
    removed: list[str] = []
    problems = still_there(left)
    if not left and note is not None:
        removed, problems = remove_files(folder, shared, note.shared_before)
    return Stopped(
        seconds=time.monotonic() - begin,
        killed=killed,
        left=tuple(ref.pid for ref in left),
        removed=tuple(removed),
        problems=tuple(problems),
    )


def _of_this_boot(note: scratch.Note | None) -> frozenset[ProcessRef]:
    """The processes of a note that can still mean something."""
    if note is None or note.boot != scratch.boot_id():
        return frozenset()
    return note.seen | ({note.leader} if note.leader else frozenset())


def still_there(left: Sequence[ProcessRef]) -> list[str]:
    """The problem of processes that do not end, in words."""
    if not left:
        return []
    pids = ", ".join(str(ref.pid) for ref in left)
    return [f"process {pids} cannot be ended: it hangs inside the kernel or is another user's"]
