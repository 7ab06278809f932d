"""The screen: plain lines in a pipe, and a reader that goes away."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from sweeper.records.events import SweepEnded, TrialStarted
from sweeper.records.log import EventLog
from sweeper.report.screen import PatientConsole, Screen


def test_new_events_become_lines(tmp_path: Path) -> None:
    log, out = tmp_path / "trials.jsonl", io.StringIO()
    EventLog(log).append(TrialStarted(trial=3, values={}, label="a [bold] label"))
    with Screen(log, Console(file=out)) as screen:
        screen.refresh()
        screen.refresh("stopping")
        screen.refresh("stopping")
        EventLog(log).append(SweepEnded(reason="done"))
    assert "a [bold] label" in out.getvalue()
    assert out.getvalue().count("stopping") == 1
    assert "ended (done)" in out.getvalue()


def test_a_closed_pipe_does_not_end_the_sweep(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    log = tmp_path / "trials.jsonl"
    EventLog(log).append(SweepEnded(reason="done"))
    with Screen(log, PatientConsole(file=Closed())) as screen:
        screen.say(["a sentence"])
        screen.refresh()


def test_a_terminal_gets_the_table(tmp_path: Path) -> None:
    log, out = tmp_path / "trials.jsonl", io.StringIO()
    EventLog(log).append(TrialStarted(trial=3, values={}, label="a label"))
    console = Console(file=out, force_terminal=True, width=100, height=30)
    with Screen(log, console) as screen:
        screen.refresh("a note")
    assert "a label" in out.getvalue()
    assert "a note" in out.getvalue()
