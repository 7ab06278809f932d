"""Whether a server under load is dead or hung, from what is seen of it; pure."""

from __future__ import annotations

from dataclasses import dataclass

RANK_GRACE = 8.0
"""Seconds that a launcher has to end itself after one of its ranks died: SGLang 0.5.17
and later need about five (facts of its watchdog); 0.5.9 never does, and goes on
answering HTTP with nobody behind it."""


@dataclass(frozen=True)
class Glimpse:
    """A server at one moment.

    Args:
        exit_status: of the launcher; None while it lives.
        ranks_gone: how many of the processes that computed when it became ready are no more.
        tokens: that came back so far, of all requests together.
    """

    exit_status: int | None
    ranks_gone: int
    tokens: int


@dataclass(frozen=True)
class Trouble:
    """What is wrong: the class as far as it can be told without the log, and in words."""

    kind: str
    what: str


class LoadWatch:
    """Looks at a server again and again while a load level runs."""

    def __init__(self, now: float, stall_after: float) -> None:
        self._stall_after = stall_after
        self._tokens = 0
        self._moved = now
        self._gone_since: float | None = None

    def trouble(self, now: float, seen: Glimpse) -> Trouble | None:
        """What is wrong at ``now`` (seconds of any steady clock); None when nothing is."""
        if seen.exit_status is not None:
            return Trouble("", f"the server ended with status {seen.exit_status} under load")
        if not seen.ranks_gone:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since > RANK_GRACE:
            what = (
                f"{seen.ranks_gone} of its scheduler processes are gone, and it goes on answering"
            )
            return Trouble("dead_behind_http", what)
        if seen.tokens != self._tokens:
            self._tokens, self._moved = seen.tokens, now
        elif now - self._moved > self._stall_after:
            what = f"no token of any request came back for {self._stall_after:g} s"
            return Trouble("hung_under_load", what)
        return None
