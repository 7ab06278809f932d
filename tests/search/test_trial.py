"""One trial on a small server of the tests: its rungs, its failures, and that it leaves nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spaces import fake_python, make_space

from sweeper.models.resolver import ResolvedModel
from sweeper.records.events import Failure, ServerLaunched
from sweeper.records.folder import SweepFolder
from sweeper.records.log import read_events
from sweeper.records.sweep import Sweep, replay
from sweeper.search.director import RungResult
from sweeper.search.plan import Plan
from sweeper.search.trial import TrialRun
from sweeper.servers import tagged
from sweeper.spec.candidate import Candidate

Make = Callable[..., TrialRun]


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path)


@pytest.fixture
def make(folder: SweepFolder) -> Make:
    """A trial whose engine is ``fake_engine.py``."""
    python = fake_python(folder.path)

    def trial(
        fault: str = "",
        workload: dict[str, Any] | None = None,
        give_up_after: float = 20,
        retries: int = 0,
    ) -> TrialRun:
        load = {"concurrency": [1, 4], "input_tokens": 16, "output_tokens": 5}
        space = make_space(
            workload={**load, **(workload or {})},
            engine={
                "env": {
                    "MY_TOKEN": "hush",
                    "NCCL_PROTO": "LL",
                    "FAKE_FAULT": fault,
                    "FAKE_MARK": str(folder.path / "seen"),
                },
                "start": {"give_up_after": give_up_after, "retries": retries},
            },
        )
        plan = Plan(
            folder,
            space,
            "cuda",
            python,
            ResolvedModel("m", "/m", "a model", 8, 8, 64, False),
            {},
            frozenset(os.environ),
        )
        candidate = Candidate({"args.log-level": "info"})
        return TrialRun(plan, 3, candidate, worker_env=os.environ, gpus=["0"])

    return trial


def state(folder: SweepFolder) -> Sweep:
    from datetime import UTC, datetime

    from sweeper.records.events import TrialStarted

    begin = TrialStarted(trial=3, values={}, label="x", time=datetime.now(UTC))
    return replay([begin, *read_events(folder.log)])


def left(folder: SweepFolder) -> list[tagged.ProcessRef]:
    launched = state(folder).trials[3].launched
    assert launched is not None
    return tagged.find(launched.tag, launched.pid)


def all_rungs(trial: TrialRun) -> RungResult:
    while not (result := trial.next_rung()).done:
        pass
    return result


def failure(result: RungResult) -> Failure:
    assert result.failure is not None
    return result.failure


def test_it_climbs_one_level_at_a_time_on_one_server(make: Make, folder: SweepFolder) -> None:
    trial = make()
    first = trial.next_rung()
    assert (list(first.levels), first.done) == ([1], False)
    last = trial.next_rung()
    assert (list(last.levels), last.done, last.failure) == ([1, 4], True, None)
    record = state(folder).trials[3]
    assert record.levels[4].requests == 4 * 4
    assert record.levels[4].metrics["prompt_tokens_mean"] == 16
    assert record.start_seconds is not None
    assert record.stop_seconds is not None
    assert record.effective["max_running_requests"] == 48
    assert left(folder) == []


def test_the_launch_is_in_the_record_and_secrets_are_not(make: Make, folder: SweepFolder) -> None:
    all_rungs(make())
    launched = state(folder).trials[3].launched
    assert launched is not None
    assert launched.env["NCCL_PROTO"] == "LL"
    assert launched.env["MY_TOKEN"] == "***"
    assert launched.env["CUDA_VISIBLE_DEVICES"] == "0"
    assert "--log-level" in launched.command
    assert "hush" not in folder.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "kind", "what"),
    [
        ("exits", "exited", "status 1"),
        ("never-healthy", "start_timeout", "/health answers 503"),
        ("no-tokenize", "refused_requests", "/tokenize answers 404"),
        ("dies-under-load", "exited", "status 3"),
        ("refuses", "request_errors", "HTTP 500 out of memory"),
        ("slow", "level_timeout", "concurrency 1 took longer than 2 s"),
    ],
)
def test_a_failure_has_a_kind_and_the_end_of_the_log(
    make: Make, folder: SweepFolder, fault: str, kind: str, what: str
) -> None:
    found = failure(all_rungs(make(fault, {"level_timeout": 2}, give_up_after=3)))
    assert found.kind == kind
    assert what in found.what
    assert any("server_args" in line for line in found.tail)
    assert left(folder) == []


def test_a_stop_request_ends_it_in_the_middle_of_a_level(make: Make, folder: SweepFolder) -> None:
    trial = make("slow")
    threading.Timer(1.5, folder.stop_request.touch).start()
    begin = time.monotonic()
    result = trial.next_rung()
    assert result.interrupted
    assert result.done
    assert time.monotonic() - begin < 15
    assert left(folder) == []


def test_a_pruned_trials_server_goes_with_close(make: Make, folder: SweepFolder) -> None:
    trial = make()
    trial.next_rung()
    assert left(folder) != []
    trial.close()
    trial.close()
    assert left(folder) == []


def test_a_fault_of_the_sweeper_costs_one_trial(make: Make, folder: SweepFolder) -> None:
    trial = make()
    trial._candidate = None  # type: ignore[assignment]
    found = failure(trial.next_rung())
    assert (found.kind, found.blame) == ("sweeper_error", "machine")


def test_the_machines_fault_is_tried_again_on_other_ports(make: Make, folder: SweepFolder) -> None:
    result = all_rungs(make("port-taken-once", retries=2))
    assert result.failure is None
    trial = state(folder).trials[3]
    assert sorted(trial.levels) == [1, 4]
    assert [failure.kind for failure in trial.retries] == ["port_in_use"]
    ports = [e.port for e in read_events(folder.log) if isinstance(e, ServerLaunched)]
    assert len(set(ports)) == 2
    assert trial.launched is not None
    assert trial.launched.log == "trials/0003/server-1.log"
    assert left(folder) == []


def test_what_fails_twice_in_the_same_way_is_the_configurations_fault(
    make: Make, folder: SweepFolder
) -> None:
    found = failure(all_rungs(make("exits", retries=5)))
    assert (found.kind, found.blame) == ("exited", "configuration")
    assert "2 times" in found.what
    assert len(state(folder).trials[3].retries) == 1


def test_without_retries_the_first_failure_counts(make: Make, folder: SweepFolder) -> None:
    assert failure(all_rungs(make("port-taken-once"))).kind == "port_in_use"
    assert state(folder).trials[3].retries == []
