from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sweeper.records import events as ev
from sweeper.records.sweep import Sweep
from sweeper.report.lines import line

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An hour east of Greenwich: the clock on the wall is meant, not UTC."""
    monkeypatch.setenv("TZ", "TST-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def told(events: list[ev.AnyEvent]) -> list[str]:
    """The lines as a reader of the growing log sees them."""
    sweep, lines = Sweep(), []
    for event in events:
        sweep.apply(event)
        if (text := line(sweep, event)) is not None:
            lines.append(text)
    return lines


def test_a_sweep_in_lines(story: Make) -> None:
    events = story().trial(0, {1: 50.0, 8: 1200.0}, 1.0).trial(1, {1: 55.0, 8: 1200.0}, 1.1)
    assert told(events.failed(2).over().events) == [
        "04:04:05 sweep: nccl, 3 candidates and the baseline, embedded, sglang 0.5.23, cuda",
        "04:04:05 trial 0/3: started, the baseline: engine defaults",
        "04:04:05 trial 0/3: server launched, log trials/0000/server.log",
        "04:04:05 trial 0/3: ready after 1 min 0 s",
        "04:04:05 trial 0/3: C=1: 50.0 tok/s, TTFT p50 210 ms",
        "04:04:05 trial 0/3: C=8: 1,200 tok/s, TTFT p50 210 ms",
        "04:05:45 trial 0/3: complete, score 1.000, single stream 50.0, peak 1,200 (C=8)",
        "04:05:45 trial 1/3: started: NCCL_NTHREADS=1",
        "04:05:45 trial 1/3: server launched, log trials/0001/server.log",
        "04:05:45 trial 1/3: ready after 1 min 0 s",
        "04:05:45 trial 1/3: C=1: 55.0 tok/s, TTFT p50 210 ms",
        "04:05:45 trial 1/3: C=8: 1,200 tok/s, TTFT p50 210 ms",
        "04:07:25 trial 1/3: complete, score 1.100, single stream 55.0 (+10.0 %), "
        "peak 1,200 (C=8, +0.0 %)",
        "04:07:25 trial 2/3: started: NCCL_NTHREADS=2",
        "04:07:25 trial 2/3: server launched, log trials/0002/server.log",
        "04:09:05 trial 2/3: failed, oom at loading weights: no memory left",
        "04:09:05 sweep: ended (all trials ran), 2 complete, 1 failed, "
        "best is trial 1: NCCL_NTHREADS=1",
    ]


def test_missing_is_not_zero_and_failed_requests_are_told(story: Make) -> None:
    sweep = story().start(0).sweep
    event = story().level(0, 4, None, failed_requests=16).events[-1]
    assert "C=4: no throughput measured, 16 of 16 requests failed" in (line(sweep, event) or "")


def test_stages_and_leftovers(story: Make) -> None:
    sweep = story().start(0).sweep
    assert (line(sweep, ev.StageReached(trial=0, stage="loading")) or "").endswith("3: loading")
    gone = ev.ServerStopped(trial=0, stop_seconds=1.0, exit_status=0)
    assert line(sweep, gone) is None
    left = gone.model_copy(update={"leftovers": 2})
    assert "2 processes had to be killed" in (line(sweep, left) or "")
    assert line(sweep, ev.ReadBack(trial=0, effective={})) is None


def test_broken_constraints_and_emulation(story: Make) -> None:
    assert "EMULATED" in told(story(emulated=True).events)[0]
    events = story().start(0).end(0, "infeasible", broken_constraints=["ttft_p95_ms@8 > 200"])
    assert told(events.events)[-1].endswith("infeasible, broken: ttft_p95_ms@8 > 200")


def test_always_one_line_without_control_characters(story: Make) -> None:
    text = told(story().start(0, "a\nb\x1b[31mred[/bold]\x1b[0m\r\x07").events)[1]
    assert text.endswith("the baseline: a bred[/bold]")
    assert text.isprintable()


def test_a_log_without_a_beginning() -> None:
    event = ev.TrialStarted(trial=4, values={}, label="x")
    assert " trial 4: started: x" in (line(Sweep(), event) or "")
