"""What a fault of the emulated engine is: where it acts, what happens, and how the server ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal[
    "arguments",
    "distributed",
    "weights",
    "memory_pool",
    "graph_capture",
    "http",
    "warm_up",
    "ready",
    "load",
]
"""Where in the life of a server a fault acts; ``load`` is from the request ``EMULATED_FAULT_AT`` on."""

How = Literal[
    "refuses_flags",  # argparse's words, status 2
    "launcher_raises",  # a traceback, status 1
    "scheduler_raises",  # a rank tells its parent, which kills the tree and itself
    "scheduler_aborts",  # C++ ends a rank with SIGABRT, after some words
    "rank_killed",  # SIGKILL from outside, without a word
    "rank_dies_unseen",  # and nobody in the launcher looks
    "watchdog",  # a batch never ends; SGLang's own watchdog acts
    "hangs",  # no line, no processor time, until killed
    "warm_up_fails",
    "port_stolen",
    "dies",  # SIGSEGV of the launcher, without a word
    "exits",  # status 0, without a word
    "terminated",  # SIGTERM that nobody of us sent
    "requests",  # how requests are answered: the HTTP part does it
    "start",  # the start is other than usual, and nothing fails
]

EXIT_STATUS: Mapping[How, int] = {
    "refuses_flags": 2,
    "launcher_raises": 1,
    "scheduler_raises": -9,
    "scheduler_aborts": 1,
    "rank_killed": 1,
    "watchdog": -9,
    "warm_up_fails": -9,
    "port_stolen": 3,
    "dies": -11,
    "exits": 0,
    "terminated": 0,
}
"""How the launcher ends, as ``Popen.returncode``, for what happens during the start.

Under load the death of a rank is seen by another part of SGLang, which ends with -9.
"""


@dataclass(frozen=True)
class Fault:
    """One way to misbehave.

    Args:
        name: in ``EMULATED_FAULT``.
        kind: the class of failure that a sweep must record; "" when the trial completes.
        source: the public report, or the place in SGLang, that it comes from.
        stage: where it acts.
        how: what happens.
        text: what is printed for it; see :mod:`.fault_texts` for the marks in it.
        first: what is printed before, without a timestamp.
        share: how far the stage has got by then, from 0 to 1.
        rank: which rank it is; the last one when there are fewer.
    """

    name: str
    kind: str
    source: str
    stage: Stage
    how: How
    text: str = ""
    first: str = ""
    share: float = 0.5
    rank: int = 0

    @property
    def exit_status(self) -> int | None:
        """How the launcher ends, as ``Popen.returncode``; None when it goes on."""
        if self.how == "scheduler_raises" or self.stage != "load":
            return EXIT_STATUS.get(self.how)
        return -9 if self.how in ("scheduler_aborts", "rank_killed") else EXIT_STATUS.get(self.how)


def told(text: str, *, rank: int, pid: int, port: int) -> str:
    """``text`` as that rank prints it."""
    marks = {"@RANK": rank, "@GPU": rank, "@PID": pid, "@PORT": port}
    for mark, value in marks.items():
        text = text.replace(mark, str(value))
    return text
