"""All processes of one server, those remembered that can no longer be recognised."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from sweeper.servers import tagged
from sweeper.servers.tagged import ProcessRef, Table


class Family:
    """The processes of a server, looked for again and again while it runs.

    A process that left the session, lost its environment to a new title and was
    then given to another parent carries no sign at all. It is found when it was
    seen before, so look now and then: what is remembered is enough to end it.

    Args:
        tag: that its environment carries.
        leader: the process that was started, whose number is that of the session.
        known: members that somebody else saw.
    """

    def __init__(
        self, tag: str, leader: ProcessRef | None = None, known: Iterable[ProcessRef] = ()
    ) -> None:
        self.tag = tag
        self.leader = leader
        self._known = set(known) | ({leader} if leader else set())
        # An owner may look from one thread and stop the server in another.
        self._lock = threading.Lock()

    def living(self) -> list[ProcessRef]:
        """Look through the whole process table; ourselves excepted."""
        processes = tagged.table()
        with self._lock:
            found = tagged.relatives(
                processes,
                self._known,
                session_of(processes, self.leader, self._known),
                lambda pid: tagged.has_tag(pid, self.tag),
            )
            found = {ref for ref in found if ref.pid != os.getpid()}
            # The dead are forgotten: they have no children, and a session is
            # proved by a living member only.
            self._known = found | ({self.leader} if self.leader else set())
        return sorted(found, key=lambda ref: ref.pid)

    def known_alive(self) -> bool:
        """Whether a member seen so far is alive. Far cheaper than a look through all."""
        with self._lock:
            known = list(self._known)
        return any(ref.alive() for ref in known)


def session_of(
    processes: Table, leader: ProcessRef | None, known: Iterable[ProcessRef]
) -> int | None:
    """The number of the leader's session, unless it may be another session by now.

    A number is not given away while its process or any member of its session is
    there. So it is still the leader's when the leader is there, be it as a zombie,
    or when a process that is known to be ours is in it.
    """
    if leader is None:
        return None

    def same(ref: ProcessRef) -> bool:
        entry = processes.get(ref.pid)
        return entry is not None and entry.ref == ref

    proved = same(leader) or any(
        same(ref) and processes[ref.pid].session == leader.pid for ref in known
    )
    return leader.pid if proved else None
