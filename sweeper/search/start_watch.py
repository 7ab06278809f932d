"""Whether a server that is starting, and has not ended, will never be ready; pure."""

from __future__ import annotations

from dataclasses import dataclass

from sweeper.servers.readiness import StartError

RANK_GRACE = 30.0
"""Seconds that a launcher has to end itself after one of its ranks died. SGLang 0.5.17 and
later look every five seconds; in 0.5.9 the launcher waits forever when it is not the first
rank that died (https://github.com/sgl-project/sglang/pull/20287)."""
PORT_GRACE = 10.0
"""Seconds that a launcher has to end itself after its port turned out to be taken. 0.5.23
goes on for ten minutes when whoever has the port accepts connections and does not answer."""


@dataclass(frozen=True)
class StartSigns:
    """A server that starts, at one moment.

    Args:
        still: seconds for which nothing has moved.
        rank_gone: seconds since one of its scheduler processes was seen to be gone; None
            when all are there.
        port_taken: seconds since its log said that its port is in use; None when it did not.
    """

    still: float = 0.0
    rank_gone: float | None = None
    port_taken: float | None = None


def start_trouble(signs: StartSigns, stall_after: float) -> StartError | None:
    """What is wrong; None as long as it may still become ready.

    Args:
        signs: of the server.
        stall_after: seconds without any movement after which it is hung.
    """
    if signs.port_taken is not None and signs.port_taken > PORT_GRACE:
        return StartError("", "its port is in use by another program and it does not end")
    if signs.rank_gone is not None and signs.rank_gone > RANK_GRACE:
        return StartError("", "a scheduler process of it is gone and it does not end")
    if signs.still > stall_after:
        return StartError("hung_start", f"nothing moved in it for {stall_after:g} s")
    return None
