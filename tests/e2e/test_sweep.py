"""The whole command on the real SGLang on this CPU: what its records hold, and what it leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sweeper.records.log import read_events
from sweeper.records.sweep import Sweep, replay
from sweeper.servers import tagged

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SPACE = """\
name: e2e
model: embedded-tiny
engine:
  args: {random-seed: 1}
  env: {MY_API_KEY: do-not-tell}
space:
  args:
    tensor-parallel-size: [1, 2, 3]
  env:
    NCCL_PROTO: [unset, LL]
workload: {input_tokens: 24, output_tokens: 8, concurrency: [1, 4], requests_per_stream: 2}
baseline: {args: {tensor-parallel-size: 1}}
search:
  trials: 2
  first:
    - {args: {tensor-parallel-size: 2}, env: {NCCL_PROTO: LL}}
    # Eight heads are not divisible by three: SGLang dies while it starts.
    - {args: {tensor-parallel-size: 3}}
"""


def sweeper(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweeper", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one real sweep: tensor parallel 1, 2, and one that cannot start."""
    folder = tmp_path_factory.mktemp("e2e")
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    done = sweeper("run", "space.yaml", "--results", "results", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the real SGLang 0.5.23 runs on the CPU" in done.stdout
    (found,) = (folder / "results").iterdir()
    return found


@pytest.fixture(scope="module")
def sweep(results: Path) -> Sweep:
    return replay(read_events(results / "trials.jsonl"))


def test_good_trials_complete_and_the_bad_one_fails(sweep: Sweep) -> None:
    assert {n: t.state for n, t in sweep.trials.items()} == {
        0: "complete",
        1: "complete",
        2: "failed",
    }
    assert sweep.best in (sweep.trials[0], sweep.trials[1])
    assert sweep.ended is not None


def test_the_failure_shows_why(sweep: Sweep) -> None:
    failure = sweep.trials[2].failure
    assert failure is not None
    # Found on the CPU itself, after a second start that ended in the same way.
    assert (failure.kind, failure.blame) == ("scheduler_exception", "configuration")
    assert any("divisible" in line or "Error" in line for line in failure.evidence)
    assert failure.tail


@pytest.mark.parametrize(("number", "size"), [(0, 1), (1, 2)])
def test_tokens_are_those_that_the_server_counted(sweep: Sweep, number: int, size: int) -> None:
    trial = sweep.trials[number]
    assert trial.effective["tp_size"] == size
    assert sorted(trial.levels) == [1, 4]
    for concurrency, level in trial.levels.items():
        assert level.failed_requests == 0
        assert level.requests == 2 * concurrency
        assert level.metrics["prompt_tokens_mean"] == 24
        # The window lies inside the seconds that the whole level took.
        tokens = level.requests * 8
        assert level.metrics["output_throughput"] * level.seconds >= tokens


def test_the_schedulers_own_environment_has_the_variable(sweep: Sweep) -> None:
    assert sweep.trials[1].scheduler_env["NCCL_PROTO"] == "LL"
    assert "NCCL_PROTO" not in sweep.trials[0].scheduler_env
    # SGLang sets this one itself, so it shows that the process was really read.
    assert sweep.trials[0].scheduler_env["NCCL_NVLS_ENABLE"] == "0"


def test_no_process_is_left(sweep: Sweep) -> None:
    for trial in sweep.trials.values():
        assert trial.launched is not None
        assert tagged.find(trial.launched.tag, trial.launched.pid) == []


def test_secrets_are_in_no_file(results: Path) -> None:
    for path in results.rglob("*"):
        if path.is_file():
            assert b"do-not-tell" not in path.read_bytes(), path


def test_the_folder_holds_what_is_promised(results: Path, sweep: Sweep) -> None:
    for name in ("space.yaml", "summary.md", "best.yaml", "optuna.journal", "trials.jsonl"):
        assert (results / name).stat().st_size > 0
    assert sorted(p.name for p in (results / "trials").iterdir()) == ["0000", "0001", "0002"]
    assert (results / "trials" / "0001" / "server.log").stat().st_size > 0
    assert sweep.started is not None
    versions: dict[str, Any] = sweep.started.environment["versions"]
    assert versions["sglang"] == "0.5.23"
    assert versions["ray"]
    assert versions["optuna"]


def test_optuna_was_told_the_same(results: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(results / "optuna.journal")))
    study = optuna.load_study(study_name="e2e", storage=storage)
    states = {t.user_attrs["trial"]: t.state for t in study.trials if "trial" in t.user_attrs}
    assert states == {0: TrialState.COMPLETE, 1: TrialState.COMPLETE, 2: TrialState.PRUNED}
    # It cannot run, so the sampler is told to keep away from it.
    (cannot,) = [t for t in study.trials if t.user_attrs.get("trial") == 2]
    assert cannot.constraints == {"runs": 1.0}


def test_report_rebuilds_the_same_from_the_log_alone(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(results / "trials.jsonl", copy)
    done = sweeper("report", copy, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("summary.md", "best.yaml"):
        assert (copy / name).read_text("utf-8") == (results / name).read_text("utf-8")


def test_the_unit_is_one_that_systemd_takes(results: Path, tmp_path: Path) -> None:
    unit = tmp_path / "best.service"
    done = sweeper("export", results, "--format", "systemd", "--output", unit, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = unit.read_text(encoding="utf-8")
    assert "--port 30000" in text
    assert "nccl-port" not in text
    verify = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (verify.returncode, verify.stderr) == (0, "")


def test_a_failed_trial_is_not_exported(results: Path, tmp_path: Path) -> None:
    done = sweeper("export", results, "--trial", 2, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")


def test_every_line_of_the_log_is_json(results: Path) -> None:
    for line in (results / "trials.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line)
