"""How long a sweep will still take, from how long its trials took so far."""

from __future__ import annotations

from datetime import datetime, timedelta

from sweeper.records.sweep import Sweep, Trial
from sweeper.report.start_left import start_left


def time_left(sweep: Sweep, now: datetime) -> timedelta | None:
    """An estimate, or None until a trial has ended.

    Pruned and failed trials count in the mean too, since such will come again.
    As many trials run side by side as do at the moment. The time budget ends
    the starting of trials, not those that run.
    """
    if sweep.started is None:
        return None
    if sweep.ended is not None:
        return timedelta(0)
    trials = list(sweep.trials.values())
    took = [length for trial in trials if (length := _length(trial)) is not None]
    if not took:
        return None
    mean = sum(took, timedelta(0)) / len(took)
    rests = [
        max(timedelta(0), mean - (now - trial.started))
        for trial in trials
        if trial.state == "running"
    ]
    waiting = max(0, sweep.started.trials + 1 - len(trials))
    estimate = (waiting * mean + sum(rests, timedelta(0))) / max(1, len(rests))
    if sweep.started.time_budget is None:
        return estimate
    last = max(rests, default=timedelta(0))
    budget = sweep.started.time + timedelta(seconds=sweep.started.time_budget) - now
    # One that starts just before the budget is spent still runs to its end.
    return min(estimate, budget + mean) if budget > timedelta(0) else last


def _length(trial: Trial) -> timedelta | None:
    """None for a trial that still runs, and for one that was cut off."""
    if trial.ended is None or trial.state == "interrupted":
        return None
    return trial.ended - trial.started


def start_time_left(sweep: Sweep, trial: Trial, now: datetime) -> float | None:
    """Seconds until the trial's server is ready, learned from the starts before it.

    None when it is ready, or nothing was learned yet.
    """
    if trial.launched is None or trial.start_seconds is not None or trial.stage_since is None:
        return None
    earlier = [t.start_stages for t in sweep.trials.values() if t.start_stages and t is not trial]
    done = trial.progress.share if trial.progress else None
    in_stage = max(0.0, (now - trial.stage_since).total_seconds())
    return start_left(earlier, trial.stage, in_stage, done)
