"""What a terminal shows while a sweep runs, computed from the replayed record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sweeper.records.sweep import Sweep, Trial
from sweeper.report import words
from sweeper.report.time_left import start_time_left, time_left

__all__ = ["time_left", "view"]

_BEST = 5
# The line of headings, and one to spare: a live display that fills the terminal is cut.
_CHROME = 2
_STYLES = {"failed": "red", "infeasible": "yellow", "pruned": "dim", "interrupted": "dim"}


def view(sweep: Sweep, now: datetime, *, note: str = "") -> RenderableType:
    """The state of a sweep at ``now`` (which knows its time zone), as high as the terminal.

    Everything is read from the sweep here; rendering later, in another thread,
    does not touch it again.
    """
    trials = list(sweep.trials.values())
    rows = {trial.number: _row(sweep, trial, now) for trial in trials}
    return _View(_head(sweep, now, note), rows, _by_interest(sweep))


@dataclass(frozen=True)
class _Row:
    cells: tuple[str, ...]
    style: str


@dataclass(frozen=True)
class _View:
    """Chooses how many rows to show when it knows how high the terminal is."""

    head: list[Text]
    rows: dict[int, _Row]
    by_interest: list[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.head
        if not self.rows:
            return
        room = (options.height or options.size.height) - len(self.head) - _CHROME
        yield _table(self.rows, *_choose(self.by_interest, room))


def _choose(by_interest: list[int], room: int) -> tuple[list[int], int]:
    """The trials to show, in their order, and the number of those left out."""
    if len(by_interest) <= room:
        return sorted(by_interest), 0
    shown = by_interest[: max(1, room - 1)]
    return sorted(shown), len(by_interest) - len(shown)


def _by_interest(sweep: Sweep) -> list[int]:
    """Running trials, the best ones, the baseline, then from the latest back."""
    trials = list(sweep.trials.values())
    running = [trial for trial in trials if trial.state == "running"]
    done = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    done.sort(key=lambda trial: trial.score or 0.0, reverse=True)
    baseline = [trial for trial in trials if trial.baseline]
    ordered = [*running, *done[:_BEST], *baseline, *reversed(trials)]
    return list(dict.fromkeys(trial.number for trial in ordered))


def _table(rows: dict[int, _Row], shown: list[int], hidden: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("configuration", ratio=1, min_width=10, no_wrap=True, overflow="ellipsis")
    table.add_column("state", max_width=36, no_wrap=True, overflow="ellipsis")
    table.add_column("single", justify="right", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    table.add_column("vs baseline", justify="right", no_wrap=True)
    for number in shown:
        # Text and not str, since rich reads square brackets of a str as markup.
        table.add_row(*map(Text, rows[number].cells), style=rows[number].style)
    if hidden:
        table.add_row("", Text(f"... {hidden} more"), style="dim")
    return table


def _row(sweep: Sweep, trial: Trial, now: datetime) -> _Row:
    change = sweep.change(trial)
    both = [words.percent(each) for each in (change.single_stream, change.peak)]
    known = any(each is not None for each in (change.single_stream, change.peak))
    label = words.plain(trial.label)
    cells = (
        str(trial.number),
        f"baseline: {label}" if trial.baseline else label,
        _state(sweep, trial, now),
        words.rate(trial.single_stream),
        _peak(sweep, trial),
        " / ".join(both) if known else words.MISSING,
    )
    style = "bold green" if trial is sweep.best else _STYLES.get(trial.state, "")
    return _Row(cells, style)


def _doing(sweep: Sweep, trial: Trial) -> str:
    """The stage of the start; after it, the level that is being measured."""
    if trial.start_seconds is None:
        done = f" {trial.progress.done}/{trial.progress.total}" if trial.progress else ""
        return f"{words.plain(trial.stage)}{done}"
    planned = sweep.started.levels if sweep.started else []
    missing = next((level for level in planned if level not in trial.levels), None)
    return "ending" if missing is None else f"measuring C={missing}"


def _state(sweep: Sweep, trial: Trial, now: datetime) -> str:
    if trial.state == "running":
        seconds = max(0, round((now - trial.started).total_seconds()))
        left = start_time_left(sweep, trial, now)
        until = "" if left is None else f", {left:.0f} s left"
        return f"{_doing(sweep, trial)} {seconds} s{until}"
    return f"{trial.state}: {words.plain(trial.failure.kind)}" if trial.failure else trial.state


def _peak(sweep: Sweep, trial: Trial) -> str:
    # Higher levels are still to come: a peak of the first level alone would mislead.
    if trial.peak is None or (len(trial.levels) < 2 and not sweep.peak_is_final(trial)):
        return words.MISSING
    value, concurrency = trial.peak
    mark = "" if sweep.peak_is_final(trial) else ">="
    return f"{mark}{words.rate(value)} C={concurrency}"


def _head(sweep: Sweep, now: datetime, note: str) -> list[Text]:
    lines = [_title(sweep), _progress(sweep, now), _best(sweep)]
    if note:
        lines.append(Text(words.plain(note)))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _title(sweep: Sweep) -> Text:
    if sweep.started is None:
        return Text("waiting for the sweep to begin")
    line = Text(words.plain(sweep.started.sweep), style="bold")
    if sweep.started.emulated:
        line.append(" ").append(words.EMULATED, style="bold reverse")
    where = f"  {words.plain(sweep.started.model)}, {words.engine(sweep)}, {sweep.started.device}"
    return line.append(where, style="not bold")


def _progress(sweep: Sweep, now: datetime) -> Text:
    if sweep.started is None:
        return Text("")
    until = sweep.ended.time if sweep.ended else now
    parts = [f"elapsed {_clock(until - sweep.started.time)}"]
    left = time_left(sweep, now)
    if sweep.ended:
        parts.append(f"ended: {words.plain(sweep.ended.reason)}")
    elif left is not None:
        parts.append(f"about {_clock(left)} left")
    to_come = max(0, sweep.started.trials + 1 - len(sweep.trials))
    if counts := words.counts(sweep):
        parts.append(counts)
    if to_come and not sweep.ended:
        parts.append(f"{to_come} to come")
    return Text(", ".join(parts))


def _best(sweep: Sweep) -> Text:
    best = sweep.best
    if best is None:
        return Text("best so far: none, no trial has completed")
    name = "the baseline" if best.baseline else f"trial {best.number}"
    single, peak = words.single_stream(sweep, best), words.peak(sweep, best)
    return Text(f"best so far: {name}, single stream {single}, peak {peak} tok/s, measured once")


def _clock(span: timedelta) -> str:
    seconds = max(0, round(span.total_seconds()))
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
