"""What can go wrong in a way that a user can act on.

    SweeperError            anything shown to the user without a traceback
    ├── InputError          the user's file or arguments are wrong: exit status 2
    └── MachineError        the machine lacks something: exit status 1

Failures of a single trial are not exceptions that end a sweep. They are
data: see :mod:`sweeper.engines.sglang.classify`.
"""

from __future__ import annotations


class SweeperError(Exception):
    """An error with everything its reader needs: what, where, and what to do.

    Args:
        what: one sentence that says what is wrong.
        where: the file with line, the command or the path that it concerns.
        advice: one sentence that says what to do about it.
    """

    exit_status = 1

    def __init__(self, what: str, *, where: str | None = None, advice: str | None = None) -> None:
        self.what = what
        self.where = where
        self.advice = advice
        super().__init__(what)

    def __str__(self) -> str:
        first = f"{self.where}: {self.what}" if self.where else self.what
        return f"{first}\n  {self.advice}" if self.advice else first


class InputError(SweeperError):
    """A file or an argument that the user gave is wrong. Nothing was started."""

    exit_status = 2


class MachineError(SweeperError):
    """The machine lacks what the command needs: a package, a GPU, disk, network."""

    exit_status = 1
