"""What the terminal shows, read back from a console without a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from sweeper.records import events as ev
from sweeper.records.sweep import Sweep
from sweeper.report.live import time_left, view

Make = Callable[..., Any]


def shown(
    told: Any, *, width: int = 100, height: int = 30, later: float = 0, note: str = ""
) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=False)
    console.print(view(told.sweep, told.now + timedelta(seconds=later), note=note))
    return out.getvalue()


def row(text: str, number: int) -> str:
    return next(line for line in text.splitlines() if re.match(rf"\s*{number} ", line))


def numbers(text: str) -> list[int]:
    return [int(m[1]) for line in text.splitlines() if (m := re.match(r"\s*(\d+) \S", line))]


def test_rows_and_the_best_so_far(whole: Any) -> None:
    text = shown(whole)
    assert "best so far: trial 2, single stream 55.0 (+10.0 %), peak 198.0 (C=8, -1.0 %)" in text
    assert "3 complete, 1 failed" in text
    assert "baseline: engine defaults" in row(text, 0)
    assert re.search(r"better +complete +55\.0 +198\.0 C=8 +\+10\.0 % / -1\.0 %", row(text, 2))
    assert "failed: oom" in row(text, 3)
    assert "ended: all trials ran" in text


def test_a_failed_trial_is_never_the_best(story: Make) -> None:
    told = story().start(0).level(0, 1, 500.0)
    told.end(0, "failed", score=9.0, failure=ev.Failure(kind="oom", what="x"))
    assert "best so far: none" in shown(told)


def test_missing_is_not_zero(story: Make) -> None:
    text = shown(story().failed(0))
    assert re.search(r"failed: oom +- +- +-$", row(text, 0).rstrip())


def test_a_running_trial_shows_its_stage_and_seconds(story: Make) -> None:
    told = story(levels=[1, 8, 32]).trial(0, {1: 50.0, 8: 200.0, 32: 210.0}, 1.0).start(1)
    told.events.append(ev.StageReached(trial=1, stage="cuda_graphs"))
    text = shown(told.level(1, 1, 60.0), later=73)
    assert "cuda_graphs 73 s" in row(text, 1)
    assert re.search(
        r"60\.0 +- +\+20\.0 % / -$", row(text, 1).rstrip()
    )  # the peak is still to come
    assert "1 complete, 1 running, 2 to come" in text
    told.events.append(ev.ServerReady(trial=1, start_seconds=60.0))
    assert "measuring C=8 9 s" in row(shown(told, later=9), 1)
    assert ">=61.0 C=8" in row(shown(told.level(1, 8, 61.0)), 1)


def test_elapsed_and_left(story: Make) -> None:
    text = shown(story().trial(0, {1: 50.0, 8: 200.0}, 1.0), later=5)
    assert "elapsed 0:01:45, about 0:05:00 left" in text


@pytest.mark.parametrize("label", ["[bold]a[/bold]", "x=[1, 2]", "[/]", "[red", "a[/nope]b"])
def test_brackets_survive(story: Make, label: str) -> None:
    told = story(sweep="[/x]", trials=0).trial(0, {1: 50.0, 8: 200.0}, 1.0, label=label)
    text = shown(told, note="[/y]")
    assert label in row(text, 0)
    assert "[/x]" in text
    assert "[/y]" in text


def test_emulation_is_labelled_in_a_narrow_terminal_too(story: Make) -> None:
    assert "EMULATED" in shown(story(emulated=True), width=40)
    assert "EMULATED" not in shown(story())


def many(story: Make, ended: int) -> Any:
    told = story(trials=ended).trial(0, {1: 50.0, 8: 200.0}, 1.0)
    for number in range(1, ended):
        told.trial(number, {1: 50.0, 8: 200.0}, 2.0 - number / 100)
    return told.start(ended)


def test_what_does_not_fit_is_counted(story: Make) -> None:
    text = shown(many(story, 50), height=20)
    assert len(text.splitlines()) < 20
    kept = numbers(text)
    assert {50, 1, 2, 3, 4, 5, 0, 49, 48, 47} <= set(kept)
    assert f"... {51 - len(kept)} more" in text
    assert kept == sorted(kept)
    assert "more" not in shown(many(story, 50), height=80)


def test_a_running_trial_is_shown_before_better_and_later_ones(story: Make) -> None:
    told = story(trials=60).start(7)
    told.events += many(story, 6).events[1:]
    for number in range(10, 60):
        told.failed(number)
    assert "launched" in row(shown(told, height=14), 7)


@pytest.mark.parametrize("height", [5, 8, 12, 20, 60])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_fits_the_terminal(story: Make, width: int, height: int) -> None:
    told = many(story, 30)
    told.start(31, "long " * 60)
    lines = shown(told, width=width, height=height, note="long " * 60).splitlines()
    assert all(len(line) <= width for line in lines)
    # The head, the headings, one trial and the count are shown at any height.
    assert len(lines) <= max(height - 1, 7)


def test_a_live_display_takes_it(story: Make) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=15, force_terminal=True)
    told = many(story, 30)
    with Live(console=console, auto_refresh=False) as display:
        display.update(view(told.sweep, told.now), refresh=True)
    assert "more" in out.getvalue()


def test_rendering_later_does_not_look_at_the_sweep_again(story: Make) -> None:
    told = story().start(0)
    sweep = told.sweep
    before = view(sweep, told.now)
    for event in many(story, 5).events:
        sweep.apply(event)
    out = io.StringIO()
    Console(file=out, width=100, height=30).print(before)
    assert numbers(out.getvalue()) == [0]


def test_an_empty_sweep(story: Make) -> None:
    out = io.StringIO()
    Console(file=out).print(view(Sweep(), story().now))
    assert "waiting" in out.getvalue()
    assert "4 to come" in shown(story())


class TestTimeLeft:
    """Trials take 100 s each."""

    def left(self, told: Any, later: float = 0) -> float | None:
        span = time_left(told.sweep, told.now + timedelta(seconds=later))
        return None if span is None else span.total_seconds()

    def test_unknown_until_a_trial_has_ended(self, story: Make) -> None:
        assert self.left(story()) is None
        assert self.left(story().start(0)) is None
        assert self.left(story().start(0).end(0, "interrupted")) is None

    def test_the_rest_of_the_running_and_all_that_wait(self, story: Make) -> None:
        told = story(trials=3).failed(0)
        assert self.left(told) == 300
        assert self.left(told.start(1), later=30) == 270
        assert self.left(told, later=500) == 200  # longer than the mean, but not below nothing

    def test_side_by_side(self, story: Make) -> None:
        assert self.left(story(trials=4).failed(0).start(1).start(2)) == 200

    def test_the_budget_ends_the_starting(self, story: Make) -> None:
        told = story(trials=50, time_budget=250.0).failed(0).start(1)
        assert self.left(told) == 250  # 150 s of the budget, and a trial begun at its end
        assert self.left(told, later=40) == 210
        assert self.left(told, later=160) == 0
        late = story(trials=50, time_budget=110.0).failed(0).start(1)
        assert self.left(late, later=20) == 80

    def test_a_generous_budget_changes_nothing(self, story: Make) -> None:
        assert self.left(story(trials=3, time_budget=86400.0).failed(0)) == 300

    def test_nothing_is_left_of_an_ended_sweep(self, story: Make) -> None:
        assert self.left(story().failed(0).over("stopped")) == 0
