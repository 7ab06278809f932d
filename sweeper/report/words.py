"""Numbers and texts as people read them, the same in every report."""

from __future__ import annotations

import re
from collections import Counter

from sweeper.records.sweep import Sweep, Trial

MISSING = "-"
"""Stands for what was not measured, which is never zero."""

EMULATED = "EMULATED: no real server ran, the numbers come from a model of one"

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_ENGINES = {"sglang": "SGLang"}
# The order in which counts are told.
_STATES = ("complete", "running", "pruned", "infeasible", "failed", "interrupted")


def rate(value: float | None) -> str:
    """Tokens per second: ``63.6``, ``2,370``."""
    if value is None:
        return MISSING
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A difference with its sign: ``+12.3 %``, ``-0.4 %``."""
    if value is None:
        return MISSING
    return f"{round(value, 1) + 0.0:+.1f} %"  # adding zero turns -0.0 into 0.0


def duration(seconds: float) -> str:
    """A time for sentences: ``4.2 s``, ``12 min 5 s``, ``2 h 13 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def clean_line(text: str) -> str:
    """A line of a log, without colours and characters that a terminal would act on."""
    return "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", text.expandtabs()))


def plain(text: str) -> str:
    """Text on one line, whatever was in it."""
    return " ".join(clean_line(text.replace("\n", " ")).split())


def engine(sweep: Sweep) -> str:
    """The engine and its version."""
    if sweep.started is None:
        return MISSING
    name = sweep.started.engine
    return plain(f"{_ENGINES.get(name, name)} {sweep.started.engine_version or ''}")


def with_change(value: str, change: float | None) -> str:
    """A number, and in brackets the difference from the baseline where it is known."""
    return value if change is None else f"{value} ({percent(change)})"


def single_stream(sweep: Sweep, trial: Trial) -> str:
    """``63.6 (+2.0 %)``."""
    return with_change(rate(trial.single_stream), sweep.change(trial).single_stream)


def peak(sweep: Sweep, trial: Trial) -> str:
    """``2,370 (C=128, +2.0 %)``; of a trial cut short ``at least 210 (C=8)``.

    With the first level alone nothing is known of the peak yet.
    """
    if trial.peak is None:
        return MISSING
    value, concurrency = trial.peak
    if sweep.peak_is_final(trial):
        change = sweep.change(trial).peak
        more = "" if change is None else f", {percent(change)}"
        return f"{rate(value)} (C={concurrency}{more})"
    return MISSING if len(trial.levels) < 2 else f"at least {rate(value)} (C={concurrency})"


def counts(sweep: Sweep) -> str:
    """How many trials are in which state: ``5 complete, 2 failed``."""
    found = Counter(trial.state for trial in sweep.trials.values())
    return ", ".join(f"{found[state]} {state}" for state in _STATES if found[state])


def failed_requests(trial: Trial) -> list[str]:
    """``3 of 16 at C=16`` for each level in which requests failed."""
    return [
        f"{level.failed_requests} of {level.requests} at C={level.concurrency}"
        for level in trial.levels.values()
        if level.failed_requests
    ]
