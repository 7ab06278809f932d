"""What goes wrong with requests, and from which one on."""

from __future__ import annotations

from typing import Literal

from sweeper.engines.emulated.faults import find

TRICKLE = 1.0
"""Seconds of every step of a server whose answers only trickle."""

Outcome = Literal["answer", "error_chunk", "http_500", "never", "cut", "no_usage", "die"]

_OUTCOMES: dict[str, Outcome] = {
    "error_chunks": "error_chunk",
    "http_500": "http_500",
    "never_answers": "never",
    "truncated_streams": "cut",
    "no_usage": "no_usage",
}
_STOP = ("hang_under_load", "stops_answering")


class LoadFaults:
    """Counts requests, and says what becomes of each.

    Args:
        fault: by name; one that has nothing to do with requests changes nothing.
        begins: number of the request, counted from 1, from which it acts.
    """

    def __init__(self, fault: str, begins: int) -> None:
        self.fault = fault
        self._begins = begins
        self._count = 0
        kind = find(fault)
        self._deadly = kind.stage == "load" and kind.how != "requests"
        self._died = False

    @property
    def acts(self) -> bool:
        """Whether it has begun."""
        return self._count >= self._begins

    @property
    def stops(self) -> bool:
        """No token comes back any more."""
        return self.fault in _STOP and self.acts

    @property
    def trickles(self) -> bool:
        """Tokens come back, each very late."""
        return self.fault == "slow_trickle" and self.acts

    def next_request(self) -> Outcome:
        """Count one more request. "die" is said once."""
        self._count += 1
        if not self.acts:
            return "answer"
        if self._deadly and not self._died:
            self._died = True
            return "die"
        return _OUTCOMES.get(self.fault, "answer")
