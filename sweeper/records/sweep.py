"""The state of a sweep, replayed from its events. No event changes an earlier one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sweeper.records import events as ev


@dataclass
class Trial:
    """What is known of one trial. Absent means not measured."""

    number: int
    label: str
    values: dict[str, Any]
    baseline: bool
    started: datetime
    stage: str = "waiting"
    stage_since: datetime | None = None
    progress: ev.StartProgress | None = None
    launched: ev.ServerLaunched | None = None
    start_seconds: float | None = None
    start_stages: dict[str, float] = field(default_factory=dict)
    retries: list[ev.Failure] = field(default_factory=list)
    stopped: ev.ServerStopped | None = None
    levels: dict[int, ev.LevelMeasured] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    scheduler_env: dict[str, str] = field(default_factory=dict)
    state: str = "running"
    score: float | None = None
    failure: ev.Failure | None = None
    broken_constraints: list[str] = field(default_factory=list)
    ended: datetime | None = None
    last_sign: datetime | None = None

    @property
    def stop_seconds(self) -> float | None:
        """How long the end of its server took; None while there is one."""
        return self.stopped.stop_seconds if self.stopped else None

    @property
    def single_stream(self) -> float | None:
        """Output tokens per second at concurrency 1."""
        level = self.levels.get(1)
        return level.metrics.get("output_throughput") if level else None

    @property
    def peak(self) -> tuple[float, int] | None:
        """The highest output throughput in tokens per second, and its concurrency."""
        found = [
            (level.metrics["output_throughput"], level.concurrency)
            for level in self.levels.values()
            if "output_throughput" in level.metrics
        ]
        return max(found) if found else None

    @property
    def accept_length(self) -> float | None:
        """Tokens per verification step of a speculative server, over all levels."""
        found = [level.metrics.get("accept_length") for level in self.levels.values()]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Change:
    """By how many percent a trial differs from the baseline. None: not measured in both."""

    single_stream: float | None = None
    peak: float | None = None


@dataclass
class Sweep:
    """A sweep as its log tells it."""

    started: ev.SweepStarted | None = None
    trials: dict[int, Trial] = field(default_factory=dict)
    ended: ev.SweepEnded | None = None

    def apply(self, event: ev.AnyEvent) -> None:
        """Take one more event into account."""
        match event:
            case ev.SweepStarted():
                self.started = event
            case ev.SweepEnded():
                self.ended = event
            case ev.TrialStarted():
                self.trials[event.trial] = Trial(
                    event.trial, event.label, event.values, event.baseline, event.time
                )
            case _:
                if trial := self.trials.get(event.trial):
                    _apply_to_trial(trial, event)
                    trial.last_sign = event.time

    @property
    def baseline(self) -> Trial | None:
        """The trial that the others are compared with."""
        return next((trial for trial in self.trials.values() if trial.baseline), None)

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest score. Failed, pruned and infeasible ones never win."""
        done = [t for t in self.trials.values() if t.state == "complete" and t.score is not None]
        return max(done, key=lambda trial: trial.score or 0.0, default=None)

    def peak_is_final(self, trial: Trial) -> bool:
        """Whether no higher level is missing, so that the peak can be compared with another."""
        planned = self.started.levels if self.started else []
        return trial.state == "complete" or (bool(planned) and set(planned) <= set(trial.levels))

    def change(self, trial: Trial) -> Change:
        """How a trial differs from the baseline: +10.0 is ten percent more than the baseline.

        One that failed has no result, so it is not compared, whatever it measured before.
        """
        base = self.baseline
        if base is None or base is trial:
            return Change()
        if {base.state, trial.state} & {"failed", "interrupted"}:
            return Change()
        final = self.peak_is_final(base) and self.peak_is_final(trial)
        return Change(
            _percent(trial.single_stream, base.single_stream),
            _percent(trial.peak[0], base.peak[0]) if final and trial.peak and base.peak else None,
        )


def _percent(value: float | None, base: float | None) -> float | None:
    return 100 * (value / base - 1) if value is not None and base else None


def _apply_to_trial(trial: Trial, event: ev.AnyEvent) -> None:
    match event:
        case ev.ServerLaunched():
            trial.launched, trial.stage = event, "launched"
            trial.stage_since, trial.progress = event.time, None
            trial.start_seconds, trial.stopped = None, None
        case ev.StageReached():
            trial.stage, trial.stage_since, trial.progress = event.stage, event.time, None
        case ev.StartProgress():
            trial.progress = event
        case ev.ServerReady():
            trial.start_seconds, trial.start_stages = event.start_seconds, event.stages
        case ev.TrialRetried():
            trial.retries.append(event.failure)
        case ev.LevelMeasured():
            trial.levels[event.concurrency] = event
        case ev.ReadBack():
            trial.effective, trial.scheduler_env = event.effective, event.scheduler_env
        case ev.ServerStopped():
            trial.stopped = event
        case ev.TrialEnded():
            trial.state, trial.score, trial.failure = event.state, event.score, event.failure
            trial.broken_constraints, trial.ended = event.broken_constraints, event.time


def replay(events: Iterable[ev.AnyEvent]) -> Sweep:
    """The state after all of ``events``."""
    sweep = Sweep()
    for event in events:
        sweep.apply(event)
    return sweep
