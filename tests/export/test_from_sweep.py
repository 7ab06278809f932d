"""From the record of a trial to a service, and on to a unit that systemd takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import InputError
from sweeper.export.from_sweep import service
from sweeper.export.service import option
from sweeper.export.systemd import unit
from sweeper.records import events as ev
from sweeper.records.sweep import Sweep, replay

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COMMAND = [
    *(sys.executable, "-m", "sglang.launch_server", "--model-path", "/models/m"),
    *("--host", "127.0.0.1", "--port", "41234", "--served-model-name", "sweeper-abc"),
    *("--nccl-port", "41235", "--enable-metrics", "--json-model-override-args", '{"a": "$x 5%"}'),
]


def started(**changes: Any) -> ev.SweepStarted:
    fields: dict[str, Any] = {
        "time": WHEN,
        "sweep": "nccl",
        "trials": 3,
        "model": "embedded",
        "model_description": "SmolLM2-135M",
        "engine": "sglang",
        "engine_version": "0.5.23",
        "device": "cuda",
        "levels": [1, 8],
        "objectives": [],
    }
    return ev.SweepStarted(**{**fields, **changes})


def trial(number: int, speed: float, **changes: Any) -> list[ev.AnyEvent]:
    """A trial whose score is its speed."""
    command, env = changes.pop("command", COMMAND), changes.pop("env", {"NCCL_PROTO": "LL"})
    events: list[ev.AnyEvent] = [
        ev.TrialStarted(trial=number, baseline=number == 0, values={}, label=f"config {number}")
    ]
    if command is not None:
        fields: dict[str, Any] = {"pid": 1, "tag": "t", "port": 41234, "log": "server.log"}
        fields |= {"command": command, "env": env, "gpus": changes.pop("gpus", [])}
        events.append(ev.ServerLaunched(trial=number, **fields))
        events.append(ev.ServerReady(trial=number, start_seconds=313.2))
    for concurrency in (1, 8):
        events.append(
            ev.LevelMeasured(
                trial=number,
                concurrency=concurrency,
                requests=16,
                failed_requests=changes.get("failed_requests", 0),
                seconds=1.0,
                warmup_seconds=0.0,
                metrics={"output_throughput": speed * concurrency},
            )
        )
    state = changes.get("state", "complete")
    return [*events, ev.TrialEnded(trial=number, state=state, score=speed)]


def sweep(*trials: list[ev.AnyEvent], **changes: Any) -> Sweep:
    return replay([started(**changes), *(event for events in trials for event in events)])


def test_the_best_trial_is_taken_and_a_failed_one_is_not() -> None:
    of_three = sweep(trial(0, 50.0), trial(1, 55.0), trial(2, 500.0, state="failed"))
    made = service(of_three, trial=None)
    assert made.name == "nccl"
    assert made.description == "sglang, trial 1 of sweep nccl"
    assert made.start_seconds == 313.2
    assert made.provenance == (
        "Sweep nccl of 2026-01-02, trial 1: config 1",
        "Engine: sglang 0.5.23",
        "Model: embedded, SmolLM2-135M",
        "Single stream: 55.0 tok/s, +10.0 % against the baseline, measured once",
        "Peak: 440.0 tok/s at C=8, +10.0 % against the baseline, measured once",
    )


def test_what_was_the_trials_own_is_replaced_or_left_out() -> None:
    made = service(sweep(trial(0, 50.0)), trial=None, port=31000)
    dropped = ["--port", "41234", "--served-model-name", "sweeper-abc", "--nccl-port", "41235"]
    kept = [word for word in COMMAND if word not in dropped]
    assert list(made.command) == [*kept, "--port", "31000"]
    assert made.port == 31000


def test_flags_with_an_equals_sign_are_found_too() -> None:
    command = [sys.executable, "--port=1", "--nccl-port=2", "--served-model-name=x", "--tp=2"]
    made = service(sweep(trial(0, 50.0, command=command)), trial=None)
    assert made.command == (sys.executable, "--tp=2", "--port", "30000")


def test_a_flag_that_only_begins_alike_stays() -> None:
    command = [sys.executable, "--port-range", "7", "--nccl-ports", "8", "x"]
    made = service(sweep(trial(0, 50.0, command=command)), trial=None)
    assert made.command[:-2] == tuple(command)
    assert option(made.command, "--port") == "30000"


def test_the_named_trial_and_a_pointer_to_the_better_one() -> None:
    of_two = sweep(trial(0, 50.0), trial(1, 40.0))
    made = service(of_two, trial=1)
    assert made.provenance[3].startswith("Single stream: 40.0 tok/s, -20.0 %")
    assert any("Trial 0 of the sweep has a higher score" in note for note in made.notes)
    baseline = service(of_two, trial=0)
    assert "%" not in "".join(baseline.provenance)
    assert any("baseline" in note for note in baseline.notes)
    assert not any("higher score" in note for note in baseline.notes)


def test_the_environment_is_the_trials_and_the_needed_part_of_the_shell() -> None:
    shell = {
        "PATH": "/opt/bin:/usr/bin",
        "CUDA_HOME": "/usr/local/cuda",
        "HF_HOME": "/data/hf",
        "HF_HUB_OFFLINE": "1",
        "LD_LIBRARY_PATH": "/opt/lib",
        "XDG_CACHE_HOME": "/data/cache",
        "SHELL": "/bin/bash",
        "NCCL_ALGO": "Tree",
    }
    facts = {"shell": shell, "user": "nobody", "working_directory": "/srv"}
    env = {"NCCL_PROTO": "LL", "HF_HOME": "/own"}
    made = service(sweep(trial(0, 50.0, env=env), environment=facts), trial=None)
    assert made.env == {
        "PATH": "/opt/bin:/usr/bin",
        "CUDA_HOME": "/usr/local/cuda",
        "HF_HOME": "/own",
        "HF_HUB_OFFLINE": "1",
        "LD_LIBRARY_PATH": "/opt/lib",
        "XDG_CACHE_HOME": "/data/cache",
        "NCCL_PROTO": "LL",
    }
    assert (made.user, made.working_directory) == ("nobody", "/srv")


@pytest.mark.parametrize(
    "facts", [{}, {"shell": None}, {"shell": "bash", "user": None}, {"user": "1000"}]
)
def test_without_facts_nothing_is_made_up(facts: dict[str, Any]) -> None:
    made = service(sweep(trial(0, 50.0), environment=facts), trial=None)
    assert made.env == {"NCCL_PROTO": "LL"}
    assert (made.user, made.working_directory) == (None, None)


def test_figures_of_a_cpu_and_of_an_emulation_are_marked() -> None:
    on_gpu = service(sweep(trial(0, 50.0)), trial=None).provenance
    on_cpu = service(sweep(trial(0, 50.0), device="cpu"), trial=None).provenance
    emulated = service(sweep(trial(0, 50.0), device="cpu", emulated=True), trial=None).provenance
    assert "Measured on CPU: do not install on a GPU node as it is." in on_cpu
    assert any("EMULATED" in line for line in emulated)
    assert not any("CPU" in line or "EMULATED" in line for line in on_gpu)


def test_a_failed_baseline_is_not_compared_with() -> None:
    made = service(sweep(trial(0, 50.0, state="failed"), trial(1, 55.0)), trial=None)
    assert "%" not in "".join(made.provenance)


def test_notes_say_what_to_know() -> None:
    notes = " ".join(service(sweep(trial(0, 50.0, gpus=["0", "3"])), trial=None).notes)
    assert "GPUs: 0, 3" in notes
    assert "listens on this machine only" in notes
    assert "requests of the measurement failed" not in notes
    failed = service(sweep(trial(0, 50.0, failed_requests=1)), trial=None).notes
    assert any("requests of the measurement failed" in note for note in failed)
    outward = [sys.executable, "--host", "0.0.0.0"]
    notes = " ".join(service(sweep(trial(0, 50.0, command=outward)), trial=None).notes)
    assert "this machine only" not in notes


@pytest.mark.parametrize("state", ["failed", "infeasible", "pruned", "interrupted"])
def test_only_a_complete_trial_can_be_installed(state: str) -> None:
    of_two = sweep(trial(0, 50.0), trial(1, 500.0, state=state))
    with pytest.raises(InputError, match=f"trial 1 did not complete: it is {state}") as caught:
        service(of_two, trial=1)
    assert caught.value.advice == "Complete: 0."
    with pytest.raises(InputError, match="no trial completed") as caught:
        service(sweep(trial(0, 500.0, state=state)), trial=None)
    assert caught.value.advice


def test_other_mistakes_have_advice() -> None:
    with pytest.raises(InputError, match="no trial 7") as missing:
        service(sweep(trial(0, 50.0)), trial=7)
    with pytest.raises(InputError, match="launched no server") as attached:
        service(sweep(trial(0, 50.0, command=None)), trial=None)
    with pytest.raises(InputError, match="no beginning") as headless:
        service(replay(trial(0, 50.0)), trial=None)
    with pytest.raises(InputError, match="did not complete: it is running"):
        service(sweep([ev.TrialStarted(trial=0, values={}, label="x")]), trial=0)
    for caught in (missing, attached, headless):
        assert caught.value.advice


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    facts = {
        "shell": {"PATH": "/opt/x:/usr/bin", "HF_HOME": "/data/h f"},
        "user": "nobody",
        "working_directory": "/tmp",
    }
    events = trial(0, 50.0, command=[*COMMAND, "--api-key", "***"], env={"HF_TOKEN": "***"})
    odd = "two\nlines"
    text = unit(service(sweep(events, environment=facts, model_description=odd), trial=None))
    path = tmp_path / "nccl.service"

    def complaints(written: str) -> str:
        path.write_text(written)
        return subprocess.run(
            [str(ANALYZE), "verify", path],
            env={"PATH": os.environ["PATH"], "SYSTEMD_LOG_LEVEL": "warning"},
            capture_output=True,
            text=True,
        ).stderr

    assert complaints(text) == ""
    assert "Unknown key" in complaints(text.replace("Restart=", "Restarts="))
    assert "Environment=PATH=/opt/x:/usr/bin" in text
    assert 'Environment="HF_HOME=/data/h f"' in text
    assert "***" not in text
    assert "41234" not in text
    assert "sweeper-abc" not in text
    assert "User=nobody" in text
    assert "TimeoutStartSec=1080" in text
