"""The child processes: what they are told to do, and how they end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.faults import find
from sweeper.engines.emulated.log import Log
from sweeper.engines.emulated.ranks import (
    READY,
    Part,
    Rank,
    start_detokenizer,
    start_leaked,
    start_scheduler,
)
from sweeper.engines.emulated.start_script import Line

LINES = [Line(0.0, "Load weight begin."), Line(1.0, "Load weight end.")]


@pytest.fixture
def started() -> Iterator[list[Rank]]:
    ranks: list[Rank] = []
    yield ranks
    for rank in ranks:
        rank.kill()
        ended(rank)


def ended(rank: Rank) -> int:
    deadline = time.monotonic() + 5
    while (status := rank.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return status


def part(fault: str = "", fails_at: float = 0.5) -> Part:
    return Part(
        rank=3,
        title="sglang::scheduler_TP3",
        lines=LINES,
        linked_at=0.0,
        fault=find(fault) if fault else None,
        fails_at=fails_at,
    )


def log() -> Log:
    return Log(Clock.start(100), tag=" TP3")


def test_a_scheduler_writes_its_lines_reports_and_ends_when_told(
    started: list[Rank], capfd: pytest.CaptureFixture[str]
) -> None:
    rank = start_scheduler(part(), log())
    started.append(rank)
    assert os.read(rank.answers, len(READY)) == READY
    lines = capfd.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [line.text for line in LINES]
    assert all(" TP3] " in line for line in lines)
    assert psutil.Process(rank.pid).cmdline()[0].startswith("sglang::scheduler_TP3")
    rank.order("end")
    assert ended(rank) == 0
    rank.order("end")  # nobody is there to hear it


def test_a_scheduler_that_fails_tells_its_parent(
    started: list[Rank], capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGQUIT, lambda number, _: told.append(number))
    try:
        rank = start_scheduler(part("oom_weights"), log())
        started.append(rank)
        assert ended(rank) == 1
    finally:
        signal.signal(signal.SIGQUIT, before)
    assert told == [signal.SIGQUIT]
    text = capfd.readouterr().err
    assert " TP3] Scheduler hit an exception: Traceback (most recent call last):" in text
    assert "CUDA out of memory. Tried to allocate 1.31 GiB. GPU 3 has" in text
    assert "Load weight end" not in text


@pytest.mark.parametrize(
    ("fault", "status"), [("rank_killed_start", -9), ("nccl_collective_timeout", -6)]
)
def test_a_scheduler_that_ends_by_a_signal(
    fault: str, status: int, started: list[Rank], capfd: pytest.CaptureFixture[str]
) -> None:
    rank = start_scheduler(part(fault), log())
    started.append(rank)
    assert ended(rank) == status
    assert os.read(rank.answers, len(READY)) == b""


def test_eight_are_up_in_a_moment(started: list[Rank], capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    started.extend(start_scheduler(part(), log()) for _ in range(8))
    started.append(start_detokenizer(0.0, Clock.start(1)))
    assert time.monotonic() - begin < 0.5


def test_leaked_children_are_in_a_session_of_their_own_and_ignore_term() -> None:
    pid = start_leaked()
    try:
        deadline = time.monotonic() + 5
        while os.getsid(pid) != pid:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        ignored = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        mask = int(next(x for x in ignored.splitlines() if x.startswith("SigIgn")).split()[1], 16)
        assert mask >> (signal.SIGTERM - 1) & 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
