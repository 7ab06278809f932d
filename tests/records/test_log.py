from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from sweeper.errors import InputError
from sweeper.records.events import (
    Failure,
    LevelMeasured,
    SweepEnded,
    TrialEnded,
    TrialStarted,
)
from sweeper.records.log import EventLog, EventReader, read_events
from sweeper.records.masking import mask_command, mask_mapping
from sweeper.records.sweep import replay


def test_a_line_cut_short_spoils_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    log = EventLog(path)
    log.append(SweepEnded(reason="first"))
    with path.open("a") as stream:
        stream.write('{"event": "sweep_en')
    log.append(SweepEnded(reason="second"))
    assert [event.reason for event in read_events(path)] == ["first", "second"]  # type: ignore[union-attr]


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with path.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer = threading.Thread(target=EventLog(path).append, args=(SweepEnded(reason="x"),))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert path.stat().st_size == 0
        fcntl.flock(other, fcntl.LOCK_UN)
        writer.join(10)
    assert len(list(read_events(path))) == 1


def test_an_event_is_flushed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    # What reached the disk cannot be seen from a process, only that it was asked for.
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.fstat(fd).st_size))
    EventLog(tmp_path / "trials.jsonl").append(SweepEnded(reason="x"))
    assert flushed == [(tmp_path / "trials.jsonl").stat().st_size]


def test_reader_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    whole = SweepEnded(reason="done").model_dump_json() + "\n"
    path.write_text(whole[:10])
    reader = EventReader(path)
    assert list(reader.new()) == []
    path.write_text(whole)
    assert len(list(reader.new())) == 1


def test_no_log_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no record"):
        list(read_events(tmp_path / "none"))


def level(trial: int, concurrency: int, speed: float) -> LevelMeasured:
    return LevelMeasured(
        trial=trial,
        concurrency=concurrency,
        requests=1,
        failed_requests=0,
        seconds=1.0,
        warmup_seconds=0.1,
        metrics={"output_throughput": speed},
    )


def test_only_complete_trials_can_win() -> None:
    events = []
    for number, state in enumerate(["complete", "failed", "pruned", "infeasible", "interrupted"]):
        events += [
            TrialStarted(trial=number, values={}, label="x", baseline=number == 0),
            level(number, 1, 10.0 * (number + 1)),
            level(number, 8, 50.0 * (number + 1)),
            TrialEnded(
                trial=number,
                state=state,  # type: ignore[arg-type]
                score=1.0 + number,
                failure=Failure(kind="x", what="x") if state == "failed" else None,
            ),
        ]
    sweep = replay(events)
    assert sweep.best is sweep.trials[0]
    assert sweep.baseline is sweep.trials[0]
    assert sweep.trials[1].single_stream == 20.0
    assert sweep.trials[1].peak == (100.0, 8)


def test_a_missing_metric_is_missing() -> None:
    sweep = replay([TrialStarted(trial=0, values={}, label="x")])
    assert sweep.trials[0].single_stream is None
    assert sweep.trials[0].peak is None
    assert sweep.best is None


def test_secrets_are_masked_and_token_counts_are_not() -> None:
    assert mask_mapping({"HF_TOKEN": "abc", "max-total-tokens": 8192, "a": {"api_key": "x"}}) == {
        "HF_TOKEN": "***",
        "max-total-tokens": 8192,
        "a": {"api_key": "***"},
    }
    command = ["x", "--api-key", "s", "--admin-api-key=t", "--max-total-tokens", "8"]
    assert mask_command(command) == [
        "x", "--api-key", "***", "--admin-api-key=***", "--max-total-tokens", "8",
    ]  # fmt: skip
