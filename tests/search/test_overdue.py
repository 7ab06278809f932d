"""The hard limit around everything that a worker does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spaces import make_space

from sweeper.records.events import StageReached, TrialEnded, TrialStarted
from sweeper.records.sweep import replay
from sweeper.search.overdue import MARGIN, limit, overdue

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPACE = make_space(
    engine={"start": {"give_up_after": 100}},
    workload={"concurrency": [1], "level_timeout": 200},
    gpus={"wait_for": 50},
)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def late(seconds: float, *more: object) -> list[int]:
    begin = TrialStarted(trial=4, values={}, label="x", time=BEGIN)
    return [t.number for t in overdue(replay([begin, *more]), SPACE, at(seconds))]  # type: ignore[list-item]


def test_the_limit_is_beyond_the_longest_wait() -> None:
    assert limit(SPACE) == 200 + MARGIN


def test_a_silent_worker_is_overdue() -> None:
    assert late(200 + MARGIN) == []
    assert late(201 + MARGIN) == [4]


def test_any_sign_starts_the_clock_anew() -> None:
    assert late(300 + MARGIN, StageReached(trial=4, stage="x", time=at(150))) == []


def test_a_trial_that_ended_is_not_waited_for() -> None:
    assert late(9999, TrialEnded(trial=4, state="failed", time=at(1))) == []
