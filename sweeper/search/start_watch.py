"""Whether a server that is starting, and has not ended, will never be ready."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from sweeper.servers.readiness import StartError

RANK_GRACE = 30.0
"""Seconds that a launcher has to end itself after one of its ranks died. SGLang 0.5.17 and
later look every five seconds; in 0.5.9 the launcher waits forever when it is not the first
rank that died (https://github.com/sgl-project/sglang/pull/20287)."""
PORT_GRACE = 10.0
"""Seconds that a launcher has to end itself after its port turned out to be taken. 0.5.23
goes on for ten minutes when whoever has the port accepts connections and does not answer."""

LEAST_ROOM = 16 << 20
"""Bytes that must be free for a trial to begin: its log, and what it records."""
NO_ROOM = 64 << 10
"""Bytes below which a file system is full: what is written fails, or will in a moment."""


@dataclass(frozen=True)
class StartSigns:
    """A server that starts, at one moment.

    Args:
        still: seconds for which nothing has moved.
        rank_gone: seconds since one of its scheduler processes was seen to be gone; None
            when all are there.
        port_taken: seconds since its log said that its port is in use; None when it did not.
        room: bytes that are free where its log is written; None when nobody looked.
    """

    still: float = 0.0
    rank_gone: float | None = None
    port_taken: float | None = None
    room: int | None = None


def start_trouble(signs: StartSigns, stall_after: float) -> StartError | None:
    """What is wrong; None as long as it may still become ready.

    Args:
        signs: of the server.
        stall_after: seconds without any movement after which it is hung.
    """
    if signs.room is not None and signs.room < NO_ROOM:
        # Its log ends here, and every request that it would log fails.
        return StartError("disk_full", "no room is left where its log is written")
    if signs.port_taken is not None and signs.port_taken > PORT_GRACE:
        return StartError("", "its port is in use by another program and it does not end")
    if signs.rank_gone is not None and signs.rank_gone > RANK_GRACE:
        return StartError("", "a scheduler process of it is gone and it does not end")
    if signs.still > stall_after:
        return StartError("hung_start", f"nothing moved in it for {stall_after:g} s")
    return None


def room_in(folder: Path) -> int | None:
    """Bytes that are free in the file system of a folder; None where nobody can tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
