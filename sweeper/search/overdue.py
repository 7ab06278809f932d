"""A hard limit where Ray has none: workers that say nothing for longer than anything may take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sweeper.records.sweep import Sweep, Trial
from sweeper.spec.schema import SpaceFile

# Every wait of a worker has a limit of its own; this is for what no limit foresaw,
# such as a worker that hangs in the kernel on a file system that is gone.
MARGIN = 300.0


def limit(space: SpaceFile) -> float:
    """Seconds within which a worker that is alive says something: the longest single wait, and more."""
    longest = max(
        space.engine.start.give_up_after, space.workload.level_timeout, space.gpus.wait_for
    )
    return longest + MARGIN


def overdue(sweep: Sweep, space: SpaceFile, now: datetime) -> Iterator[Trial]:
    """The running trials whose worker has been silent for too long."""
    for trial in sweep.trials.values():
        last = trial.last_sign or trial.started
        if trial.state == "running" and (now - last).total_seconds() > limit(space):
            yield trial
