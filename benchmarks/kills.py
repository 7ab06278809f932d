"""Kills parts of a running sweep at random moments, and looks at what is left.

    python benchmarks/kills.py                       # 50 kills on the emulated engine
    python benchmarks/kills.py --engine sglang -n 5  # 5 on the real one, on the CPU

Each kill is a SIGKILL of the worker, the driver (the command itself), Ray's node
(its raylet) or a watcher. Ten seconds later no process of the servers that the
kill concerned may be left, and every trial that had ended must still be in the log.
After the death of a worker or a watcher the sweep itself has to go on to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sweeper.records.log import read_events
from sweeper.records.sweep import Sweep, Trial, replay
from sweeper.servers import tagged

TARGETS = ("worker", "driver", "node", "watcher")
WITHIN = 10.0

EMULATED = """\
name: kills
model: none
engine:
  kind: emulated
  env: {EMULATED_START_SPEED: 400}
space:
  args: {schedule-policy: [fcfs, lpm]}
  env: {NCCL_PROTO: [unset, LL], NCCL_NTHREADS: [unset, 512], NCCL_MAX_NCHANNELS: [unset, 8, 16]}
workload: {input_tokens: 16, output_tokens: 8, concurrency: [1, 4], requests_per_stream: 1}
search: {trials: 6, sampler: random, pruner: none}
"""
REAL = """\
name: kills
model: embedded-tiny
space:
  args: {schedule-policy: [fcfs, lpm]}
  env: {NCCL_PROTO: [unset, LL]}
workload: {input_tokens: 16, output_tokens: 8, concurrency: [1, 2], requests_per_stream: 1}
search: {trials: 2, sampler: random, pruner: none}
"""


@dataclass
class Tally:
    """What came of the kills of one target."""

    kills: int = 0
    left: int = 0
    lost: int = 0
    not_ended: int = 0
    slowest: float = 0.0
    notes: list[str] = field(default_factory=list)


class Command:
    """A sweep in a process of its own."""

    def __init__(self, folder: Path, engine: str) -> None:
        space = folder / "space.yaml"
        space.write_text(EMULATED if engine == "emulated" else REAL, encoding="utf-8")
        self.results = folder / "results"
        self.output = folder / "output.txt"
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweeper", "run", str(space), "--results", self.results],
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def sweep(self) -> Sweep:
        found = list(self.results.glob("*/trials.jsonl"))
        return replay(read_events(found[0])) if found else Sweep()

    def until(self, condition: Callable[[Sweep], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition(self.sweep()):
                return True
            if self.process.poll() is not None:
                return condition(self.sweep())
            time.sleep(0.05)
        return False

    def clean(self) -> None:
        """End what the harness itself started: Ray, whose driver it killed."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            if str(self.process.pid) in words and ("ray" in words or "gcs" in words):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def running(sweep: Sweep) -> Trial | None:
    """The trial that has a server now."""
    return next(
        (t for t in sweep.trials.values() if t.state == "running" and t.launched is not None), None
    )


def left(trials: list[Trial]) -> list[tagged.ProcessRef]:
    """Processes of the servers of these trials."""
    return [
        ref for t in trials if t.launched for ref in tagged.find(t.launched.tag, t.launched.pid)
    ]


def victim(target: str, command: Command, trial: Trial) -> int | None:
    """The process to kill."""
    if target == "driver":
        return command.process.pid
    if target == "worker":
        return trial.launched.worker if trial.launched else None
    if target == "node":
        children = psutil.Process(command.process.pid).children(recursive=True)
        return next((child.pid for child in children if child.name() == "raylet"), None)
    assert trial.launched
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "sweeper.servers.watcher" in words and trial.launched.tag in words:
            return int(process.pid)
    return None


def one_kill(target: str, rng: random.Random, engine: str, tally: Tally) -> None:
    """Start a sweep, kill at a random moment, look, and let it end where it should."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        command = Command(Path(folder), engine)
        try:
            if not command.until(lambda sweep: running(sweep) is not None, 180):
                tally.notes.append(command.output.read_text()[-2000:])
                return
            time.sleep(rng.uniform(0.0, 8.0 if engine == "emulated" else 60.0))
            command.until(lambda sweep: running(sweep) is not None, 60)
            before = command.sweep()
            trial = running(before)
            pid = victim(target, command, trial) if trial else None
            if trial is None or pid is None:
                tally.notes.append(f"{target}: nothing to kill at this moment")
                return
            with contextlib.suppress(ProcessLookupError):
                psutil.Process(pid).send_signal(signal.SIGKILL)
            tally.kills += 1
            _look(target, command, before, trial, tally)
        finally:
            command.clean()


def _look(target: str, command: Command, before: Sweep, trial: Trial, tally: Tally) -> None:
    begin = time.monotonic()
    # A watcher takes nothing with it; after the driver's death nothing at all may be left.
    concerned = [] if target == "watcher" else [trial]
    while left(concerned) and time.monotonic() - begin < WITHIN:
        time.sleep(0.05)
    tally.slowest = max(tally.slowest, time.monotonic() - begin)
    if target in ("driver", "node"):
        time.sleep(max(0.0, WITHIN - (time.monotonic() - begin)))
        concerned = list(command.sweep().trials.values())
    if refs := left(concerned):
        tally.left += 1
        tally.notes.append(f"{target}: left {refs}")
    if target != "driver":
        try:
            command.process.wait(300)
        except subprocess.TimeoutExpired:
            tally.not_ended += 1
    after = command.sweep()
    done = {n: t.state for n, t in before.trials.items() if t.state != "running"}
    if any(after.trials[n].state != state for n, state in done.items()):
        tally.lost += 1
    if target in ("worker", "watcher"):
        states = Counter(t.state for t in after.trials.values())
        if set(states) != {"complete"} or command.process.returncode != 0:
            tally.not_ended += 1
            tally.notes.append(f"{target}: {dict(states)}, status {command.process.returncode}")
        if refs := left(list(after.trials.values())):
            tally.left += 1
            tally.notes.append(f"{target}: at the end {refs}")


def main() -> int:
    """Kill, print the table; status 1 when anything was left or lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("emulated", "sglang"), default="emulated")
    parser.add_argument("-n", type=int, default=50, help="kills, spread over the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=TARGETS, action="append")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    targets = options.target or list(TARGETS)
    tallies = {target: Tally() for target in targets}
    for number in range(options.n):
        target = targets[number % len(targets)]
        one_kill(target, rng, options.engine, tallies[target])
        print(f"{number + 1}/{options.n} {target}", file=sys.stderr)
    print(f"engine: {options.engine}, seed {options.seed}")
    print(f"{'killed':9} {'kills':>5} {'left':>5} {'lost':>5} {'bad end':>7} {'slowest, s':>10}")
    for target, t in tallies.items():
        print(f"{target:9} {t.kills:5} {t.left:5} {t.lost:5} {t.not_ended:7} {t.slowest:10.1f}")
    for t in tallies.values():
        for note in t.notes:
            print(note)
    bad = any(t.left or t.lost or t.not_ended or t.notes for t in tallies.values())
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
