"""The whole command with the real Ray and the real Optuna, on a small server of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from spaces import fake_python

from sweeper.records.log import read_events
from sweeper.records.sweep import Sweep, replay
from sweeper.servers import tagged

# It asks the installed SGLang for its flags and starts Ray: ten seconds each.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

SPACE = """\
name: fake
model: embedded-tiny
engine: {{python: {python}, env: {{MY_TOKEN: do-not-tell}}}}
space:
  args: {{schedule-policy: [fcfs, lpm]}}
  env:
    FAKE_DELAY: ["0.01", "0.2"]
    FAKE_FAULT: [unset, exits, slow]
workload: {{input_tokens: 8, output_tokens: 4, concurrency: [1, 2], requests_per_stream: 2}}
baseline: {{args: {{schedule-policy: fcfs}}, env: {{FAKE_DELAY: "0.01"}}}}
search:
{search}
"""


class Command:
    """``python -m sweeper run`` as a process of its own."""

    def __init__(self, folder: Path, search: str) -> None:
        space = folder / "space.yaml"
        text = SPACE.format(python=fake_python(folder), search=search)
        space.write_text(text, encoding="utf-8")
        self.results = folder / "results"
        self.output = folder / "output.txt"
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweeper", "run", str(space), "--results", self.results],
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
            )

    @property
    def text(self) -> str:
        return self.output.read_text(encoding="utf-8")

    @property
    def folder(self) -> Path:
        (found,) = self.results.iterdir()
        return found

    @property
    def sweep(self) -> Sweep:
        return replay(read_events(self.folder / "trials.jsonl"))

    def until(self, words: str, seconds: float = 60) -> None:
        wait_until(lambda: words in self.text or self.process.poll() is not None, seconds)
        assert words in self.text, self.text

    def left(self) -> list[tagged.ProcessRef]:
        """What is still there of the servers that were started."""
        launched = [t.launched for t in self.sweep.trials.values() if t.launched]
        assert launched
        return [ref for each in launched for ref in tagged.find(each.tag, each.pid)]


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Command]]:
    started: list[Command] = []

    def start(search: str) -> Command:
        started.append(Command(tmp_path, search))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            for child in psutil.Process(command.process.pid).children(recursive=True):
                child.kill()
            command.process.kill()
        command.process.wait()


FAILS_AND_IS_SLOW = """\
  trials: 6
  pruner: {name: percentile, args: {percentile: 50.0, n_startup_trials: 2}}
  first:
    - {args: {schedule-policy: lpm}, env: {FAKE_DELAY: "0.01"}}
    - {args: {schedule-policy: fcfs}, env: {FAKE_DELAY: "0.01", FAKE_FAULT: exits}}
    - {args: {schedule-policy: fcfs}, env: {FAKE_DELAY: "0.2"}}
"""


def test_a_sweep_measures_fails_and_prunes(run: Callable[[str], Command]) -> None:
    command = run(FAILS_AND_IS_SLOW.replace("trials: 6", "trials: 3"))
    assert command.process.wait(120) == 0, command.text
    states = {number: trial.state for number, trial in command.sweep.trials.items()}
    assert states == {0: "complete", 1: "complete", 2: "failed", 3: "pruned"}
    failure = command.sweep.trials[2].failure
    assert failure is not None
    assert any("not supported" in line for line in failure.tail)
    assert list(command.sweep.trials[3].levels) == [1]  # stopped after the single stream
    assert command.sweep.best in (command.sweep.trials[0], command.sweep.trials[1])
    assert "all trials were run" in command.text
    assert (command.folder / "summary.md").exists()
    assert command.left() == []
    for path in filter(Path.is_file, command.folder.rglob("*")):
        assert b"do-not-tell" not in path.read_bytes(), path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_and_keeps_what_was_measured(
    run: Callable[[str], Command], number: signal.Signals
) -> None:
    hangs = "  trials: 5\n  first: [{env: {FAKE_DELAY: '0.01', FAKE_FAULT: slow}}]"
    command = run(hangs)
    command.until("trial 1/5: ready")
    command.process.send_signal(number)
    assert command.process.wait(30) == 130, command.text
    assert {t.state for t in command.sweep.trials.values()} == {"complete", "interrupted"}
    assert "everything that was measured is kept" in command.text
    assert "Traceback" not in command.text
    assert (command.folder / "best.yaml").exists()
    assert not (command.folder / ".stop").exists()
    assert command.left() == []


def test_a_signal_to_the_whole_group_ends_ray_first_and_still_leaves_a_summary(
    run: Callable[[str], Command],
) -> None:
    """As systemd and timeout do it."""
    command = run("  trials: 2\n  first: [{env: {FAKE_FAULT: slow}}]")
    command.until("trial 1/2: ready")
    os.killpg(command.process.pid, signal.SIGTERM)
    assert command.process.wait(45) == 130, command.text
    assert {t.state for t in command.sweep.trials.values()} == {"complete", "interrupted"}
    assert (command.folder / "summary.md").exists()
    assert command.left() == []


def test_ctrl_c_while_ray_starts_is_an_interruption_and_no_fault_of_rays(
    run: Callable[[str], Command],
) -> None:
    """The terminal sends it to what Ray has started so far, too."""
    command = run("  trials: 2")
    command.until("results: ")
    time.sleep(1.0)  # into the start of Ray, which takes several seconds
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.process.wait(20) == 130, command.text
    assert "Ray does not start" not in command.text
    assert command.sweep.trials == {}
    assert (command.folder / "summary.md").exists()


def test_a_second_ctrl_c_ends_it_at_once(run: Callable[[str], Command]) -> None:
    command = run("  trials: 2")
    command.until("trial 0/2: server launched")
    command.process.send_signal(signal.SIGINT)
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(30) == 130, command.text
    assert "Traceback" not in command.text
    assert command.left() == []


def test_a_killed_sweep_leaves_no_server(run: Callable[[str], Command]) -> None:
    command = run("  trials: 2\n  first: [{env: {FAKE_FAULT: slow}}]")
    command.until("trial 1/2: ready")
    os.kill(command.process.pid, signal.SIGKILL)
    wait_until(lambda: command.left() == [], 60)


def test_servers_run_at_the_priority_of_the_user(run: Callable[[str], Command]) -> None:
    command = run("  trials: 2\n  first: [{env: {FAKE_FAULT: slow}}]")
    command.until("trial 1/2: ready")
    nice = {psutil.Process(ref.pid).nice() for ref in command.left()}
    assert nice == {psutil.Process().nice()}
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(30) == 130
