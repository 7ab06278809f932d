"""Slow is not hung: what counts as movement."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from sweeper.servers.activity import Activity, StallWatch, look, moved
from sweeper.servers.tagged import ProcessRef

A, B = ProcessRef(10, 1), ProcessRef(11, 2)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (Activity(), None),
        (Activity(lines=1), "its log"),
        (Activity(cpu={A: 0.5}), "the processor"),
        (Activity(cpu={A: 0.03, B: 0.03}), "the processor"),
        (Activity(cpu={A: 0.04}), None),
        (Activity(io={A: 70_000}), "reads and writes"),
        (Activity(io={A: 600}), None),
        (Activity(gpu_memory=(0, 5 << 20)), "GPU memory"),
        (Activity(gpu_memory=(0, 5000)), None),
    ],
)
def test_each_kind_of_movement_counts(after: Activity, what: str | None) -> None:
    assert moved(Activity(gpu_memory=(0, 0)), after, 1.0) == what


def test_a_process_that_ended_is_no_movement() -> None:
    assert moved(Activity(cpu={A: 9.0, B: 1.0}), Activity(cpu={B: 1.0}), 1.0) is None


def test_what_creeps_below_the_idle_rate_is_still() -> None:
    watch = StallWatch(0.0, Activity())
    for second in range(1, 301):
        still = watch.still(float(second), Activity(cpu={A: second * 0.005}, io={A: second * 500}))
    assert still >= 290


def test_slow_but_steady_movement_is_never_still() -> None:
    watch = StallWatch(0.0, Activity())
    longest = max(
        watch.still(float(second), Activity(cpu={A: second * 0.02})) for second in range(1, 400)
    )
    assert longest <= 3


def test_a_busy_process_moves_and_a_waiting_one_does_not() -> None:
    busy = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
    idle = "import time\ntime.sleep(30)"
    started = [subprocess.Popen([sys.executable, "-S", "-c", code]) for code in (busy, idle)]
    try:
        refs = [ProcessRef(p.pid, 0) for p in started]
        deadline = time.monotonic() + 20
        begin = time.monotonic()
        first = look(refs, 1)
        while not moved(first, now := look(refs, 1), time.monotonic() - begin):
            assert time.monotonic() < deadline
        assert now.cpu[refs[0]] > now.cpu[refs[1]]
        assert now.lines == 1
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_what_is_gone_is_left_out() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    seen = look([ProcessRef(process.pid, 0), ProcessRef(os.getpid(), 0)], 0)
    assert [ref.pid for ref in seen.cpu] == [os.getpid()]
