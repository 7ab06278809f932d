"""The rules of a sweep, with plain values in the place of Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spaces import make_space

from sweeper.records.events import Failure, TrialEnded
from sweeper.records.log import EventLog, read_events
from sweeper.records.sweep import Trial, replay
from sweeper.search.director import Answer, Attempt, Director, RungResult
from sweeper.search.study import SweepStudy

Levels = dict[int, dict[str, float]]


class Sweep:
    """A director on a real study and a real log; time and the stop request are plain values."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.now = 0.0
        self.stop = False
        self.cleaned: list[int] = []
        space = make_space(**fields)
        self.log = folder / "trials.jsonl"
        self.director = Director(
            space,
            SweepStudy(space, "cuda", folder / "optuna.journal"),
            EventLog(self.log),
            stop_requested=lambda: self.stop,
            worker_died=self.cleaned.append,
            clock=lambda: self.now,
        )

    def trial(self, number: int) -> Trial:
        return replay(read_events(self.log)).trials[number]


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Sweep]:
    return lambda **fields: Sweep(tmp_path, **fields)


def test_a_complete_trial(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep()
    assert isinstance(s.director.propose("a"), Attempt)
    assert not s.director.rung("a", RungResult({1: levels[1]}))
    s.director.rung("a", RungResult(levels, done=True))
    s.director.end("a")
    trial = s.trial(0)
    assert (trial.state, trial.baseline) == ("complete", True)
    assert trial.score == pytest.approx(100.0)


def test_the_end_is_written_once(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep()
    s.director.propose("a")
    s.director.rung("a", RungResult(levels, done=True))
    s.director.end("a")
    s.director.end("a", "late news")
    s.director.end("stranger")
    assert len([e for e in read_events(s.log) if isinstance(e, TrialEnded)]) == 1


def test_the_baseline_runs_alone_and_then_as_many_as_allowed(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep(search={"trials": 3, "parallel": 2})
    s.director.propose("base")
    assert s.director.propose("a") is Answer.WAIT
    s.director.rung("base", RungResult(levels, done=True))
    s.director.end("base")
    assert isinstance(s.director.propose("a"), Attempt)
    assert isinstance(s.director.propose("b"), Attempt)
    assert s.director.propose("c") is Answer.WAIT
    s.director.end("a")
    assert isinstance(s.director.propose("c"), Attempt)
    s.director.end("b")
    assert s.director.propose("d") is Answer.WAIT  # the last one may have to be run again
    s.director.end("c")
    assert s.director.propose("d") is Answer.FINISHED  # three beside the baseline


def test_a_failure_never_has_a_score(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep()
    s.director.propose("a")
    s.director.rung("a", RungResult(levels, done=True, failure=Failure(kind="k", what="w")))
    s.director.end("a")
    assert (s.trial(0).state, s.trial(0).score) == ("failed", None)


def test_a_trial_whose_worker_died_is_run_again_once_its_server_is_gone(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep()
    first = s.director.propose("a")
    assert isinstance(first, Attempt)
    s.director.rung("a", RungResult({1: levels[1]}))
    s.director.end("a", "the worker died")
    assert s.cleaned == [0]
    assert s.trial(0).state == "running"
    assert s.director.propose("b") == Attempt(first.proposal, 1)
    s.director.rung("b", RungResult(levels, done=True))
    s.director.end("b")
    assert s.trial(0).state == "complete"
    assert [failure.kind for failure in s.trial(0).retries] == ["worker_died"]


def test_the_last_trial_is_run_again_too(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep(search={"trials": 1})
    s.director.propose("base")
    s.director.rung("base", RungResult(levels, done=True))
    s.director.end("base")
    s.director.propose("a")
    assert s.director.propose("b") is Answer.WAIT
    s.director.end("a", "the worker died")
    assert isinstance(s.director.propose("b"), Attempt)


def test_what_waits_to_be_run_again_is_interrupted_by_a_stop(sweep: Callable[..., Sweep]) -> None:
    s = sweep()
    s.director.propose("a")
    s.director.end("a", "the worker died")
    s.stop = True
    assert s.director.propose("b") is Answer.FINISHED
    s.director.end_all()
    assert s.trial(0).state == "interrupted"


def test_a_machine_that_spoils_everything_ends_the_sweep(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep(search={"trials": 9}, space={"args": {"a": [1, 2, 3, 4, 5, 6]}})
    full = Failure(kind="disk_full", what="w", blame="machine")
    for key in "abc":
        assert isinstance(s.director.propose(key), Attempt)
        s.director.rung(key, RungResult(done=True, failure=full))
        s.director.end(key)
    assert s.director.propose("d") is Answer.FINISHED
    assert "disk_full" in s.director.reason


def test_configurations_that_fail_do_not_end_the_sweep(sweep: Callable[..., Sweep]) -> None:
    s = sweep(search={"trials": 9}, space={"args": {"a": [1, 2, 3, 4, 5, 6]}})
    bad = Failure(kind="oom_weights", what="w", blame="configuration")
    for key in "abcd":
        assert isinstance(s.director.propose(key), Attempt)
        s.director.rung(key, RungResult(done=True, failure=bad))
        s.director.end(key)
    assert isinstance(s.director.propose("e"), Attempt)


def test_a_dead_worker_is_the_machines_failure(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep(engine={"start": {"retries": 0}})
    s.director.propose("a")
    s.director.rung("a", RungResult({1: levels[1]}))
    s.director.end("a", "the worker died")
    failure = s.trial(0).failure
    assert failure is not None
    assert (failure.kind, failure.blame) == ("worker_died", "machine")


def test_a_trial_that_never_measured_all_is_failed(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep(objectives=[{"metric": "ttft_p95_ms@4", "goal": "minimize"}])
    s.director.propose("a")
    s.director.rung("a", RungResult({1: levels[1]}, done=True))
    s.director.end("a")
    failure = s.trial(0).failure
    assert failure is not None
    assert "ttft_p95_ms@4" in failure.what


def test_a_pruned_trial_is_told_and_recorded_as_pruned(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep(search={"pruner": {"name": "threshold", "args": {"lower": 60.0}}})
    s.director.propose("a")
    assert not s.director.rung("a", RungResult({1: levels[1]}))  # the baseline goes on
    s.director.rung("a", RungResult(levels, done=True))
    s.director.end("a")
    s.director.propose("b")
    assert s.director.rung("b", RungResult({1: levels[1]}))
    assert s.director.rung("b", RungResult({1: levels[1]}, done=True))  # Ray shows it again
    s.director.end("b")
    assert (s.trial(1).state, s.trial(1).score) == ("pruned", pytest.approx(50.0))
    assert replay(read_events(s.log)).best == s.trial(0)


def test_a_broken_constraint_cannot_win(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep(constraints=[{"metric": "ttft_p95_ms@4", "at_most": 300.0}])
    s.director.propose("a")
    s.director.rung("a", RungResult(levels, done=True))
    s.director.end("a")
    assert s.trial(0).state == "infeasible"
    assert s.trial(0).broken_constraints == ["ttft_p95_ms@4 at most 300"]
    assert replay(read_events(s.log)).best is None


def test_a_stop_ends_the_sweep_and_the_open_trial_is_interrupted(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep()
    s.director.propose("a")
    s.stop = True
    assert s.director.propose("b") is Answer.FINISHED
    s.director.end_all()
    assert s.trial(0).state == "interrupted"
    assert "stop" in s.director.reason


def test_no_trial_starts_after_the_time_budget(sweep: Callable[..., Sweep], levels: Levels) -> None:
    s = sweep(search={"time_budget": "10s"})
    s.now = 9.0
    assert isinstance(s.director.propose("a"), Attempt)
    s.now = 11.0
    assert s.director.propose("b") is Answer.FINISHED
    assert "time budget" in s.director.reason


def test_a_small_space_ends_when_everything_was_tried(
    sweep: Callable[..., Sweep], levels: Levels
) -> None:
    s = sweep(space={"args": {"a": [False, True]}}, search={"trials": 30})
    for key in "ab":
        assert isinstance(s.director.propose(key), Attempt)
        s.director.rung(key, RungResult(levels, done=True))
        s.director.end(key)
    assert s.director.propose("c") is Answer.FINISHED
    assert "every candidate" in s.director.reason


def test_secrets_of_the_space_are_not_in_the_record(sweep: Callable[..., Sweep]) -> None:
    s = sweep(space={"env": {"HF_TOKEN": ["hf_one", "hf_two"]}, "args": {"a": [1, 2]}})
    s.director.propose("a")
    s.director.end("a")
    s.director.propose("b")
    assert "hf_" not in s.log.read_text(encoding="utf-8")
