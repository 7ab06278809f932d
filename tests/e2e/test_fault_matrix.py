"""Every fault of the catalog, in a trial of its own: the class, and nothing left behind.

The servers are those of the emulated engine: real processes with real children that
die, hang and lie as SGLang was seen to. At the end a table is printed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweeper.engines.emulated.faults import catalog
from sweeper.engines.sglang.failures import failures
from sweeper.engines.sglang.launch import EMULATED
from sweeper.models.resolver import ResolvedModel
from sweeper.records.events import TrialStarted
from sweeper.records.folder import SweepFolder
from sweeper.records.log import read_events
from sweeper.records.sweep import Trial, replay
from sweeper.search.director import RungResult
from sweeper.search.plan import Plan
from sweeper.search.trial import TrialRun
from sweeper.servers import scratch, tagged
from sweeper.spec.candidate import Candidate
from sweeper.spec.schema import SpaceFile

pytestmark = pytest.mark.timeout(120)

# Limits that tell one fault from another; the others have room.
LOAD: dict[str, dict[str, Any]] = {
    "never_answers": {"request_timeout": 2, "stall_after": 60},
    "slow_trickle": {"level_timeout": 6, "stall_after": 60},
}
SPACE: dict[str, Any] = {
    "name": "matrix",
    "model": "none",
    "engine": {
        "kind": "emulated",
        "args": {"tensor-parallel-size": 4},
        "env": {"EMULATED_START_SPEED": 500, "EMULATED_FAULT_AT": 6},
        "start": {"stall_after": 3, "give_up_after": 60, "retries": 0},
    },
    "space": {"env": {"EMULATED_FAULT": ["unset"]}},
    "workload": {
        "input_tokens": 16,
        "output_tokens": 8,
        "concurrency": [1, 4],
        "requests_per_stream": 4,
        "request_timeout": 40,
        "level_timeout": 50,
        "stall_after": 5,
    },
}


@dataclass
class Matrix:
    """What the table at the end shows."""

    rows: list[tuple[str, str, str, float, float]] = field(default_factory=list)


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[Matrix]:
    found = Matrix()
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        _print(found)


def _print(found: Matrix) -> None:
    print()
    print(f"{'fault':28} {'recorded as':26} {'trial, s':>8} {'stop, s':>8}  source")
    for name, kind, source, seconds, stop in found.rows:
        print(f"{name:28} {kind:26} {seconds:8.1f} {stop:8.1f}  {source}")


def run_trial(folder: SweepFolder, fault: str) -> RungResult:
    data = {**SPACE, "workload": {**SPACE["workload"], **LOAD.get(fault, {})}}
    space = SpaceFile.model_validate(data)
    model = ResolvedModel("none", "none", "none", None, None, None, False)
    plan = Plan(
        folder,
        space,
        "cuda",
        Path(sys.executable),
        model,
        space.engine.args,
        frozenset(os.environ),
        module=EMULATED,
    )
    candidate = Candidate({"env.EMULATED_FAULT": fault})
    trial = TrialRun(plan, 1, candidate, worker_env=os.environ, gpus=[])
    while not (result := trial.next_rung()).done:
        pass
    return result


def recorded(folder: SweepFolder) -> Trial:
    begin = TrialStarted(trial=1, values={}, label="x", time=datetime.now(UTC))
    return replay([begin, *read_events(folder.log)]).trials[1]


def test_the_catalog_is_large_enough() -> None:
    assert len([fault for fault in catalog().values() if fault.kind]) >= 35
    assert {fault.kind for fault in catalog().values() if fault.kind} <= set(failures())
    assert all(fault.source for fault in catalog().values())


@pytest.mark.parametrize("name", sorted(catalog()))
def test_a_fault_is_put_in_its_class_and_leaves_nothing(
    name: str, tmp_path: Path, matrix: Matrix
) -> None:
    fault = catalog()[name]
    folder = SweepFolder(tmp_path)
    shared_before = set(Path("/dev/shm").iterdir())
    begin = time.monotonic()
    result = run_trial(folder, name)
    seconds = time.monotonic() - begin
    kind = result.failure.kind if result.failure else ""
    trial = recorded(folder)
    matrix.rows.append(
        (name, kind or "(complete)", fault.source, seconds, trial.stop_seconds or 0.0)
    )
    log = (trial.launched and (tmp_path / trial.launched.log)) or tmp_path / "none"
    assert kind == fault.kind, log.read_text(errors="replace")[-4000:]
    if result.failure:
        assert result.failure.evidence or result.failure.tail or fault.kind in ("exited", "crashed")
        assert result.failure.advice
    else:
        assert sorted(trial.levels) == [1, 4]
    assert trial.launched is not None
    assert tagged.find(trial.launched.tag, trial.launched.pid) == []
    assert not scratch.path_of(trial.launched.tag).exists()
    assert set(Path("/dev/shm").iterdir()) <= shared_before
    assert trial.stopped is not None
    assert trial.stopped.problems == []
    assert trial.stopped.port_free is True
