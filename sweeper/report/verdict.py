"""The verdict on a sweep: what its first reader wants to know, and no more than is known."""

from __future__ import annotations

from collections import Counter

from sweeper.records.sweep import Sweep, Trial
from sweeper.report import words
from sweeper.report.markdown import code
from sweeper.report.markdown import words as escaped

_ONCE = (
    "Each configuration was measured once. There is no interval yet, so any difference, a large "
    "one too, may be noise."
)


def verdict(sweep: Sweep) -> str:
    """One paragraph of Markdown."""
    return " ".join(part for part in (_winner(sweep), _ending(sweep)) if part)


def _winner(sweep: Sweep) -> str:
    best, base = sweep.best, sweep.baseline
    if best is None:
        return _nothing(sweep)
    if best is base:
        return _baseline_wins(sweep, best)
    first = f"The best configuration is trial {best.number}, {code(best.label)}: {_numbers(sweep, best)}."
    if base is None:
        return f"{first} There is no baseline to compare it with. {_ONCE}"
    change = sweep.change(best)
    if change.single_stream is None and change.peak is None:
        return f"{first} There is nothing to compare it with: the baseline {_fate(base)}. {_ONCE}"
    return f"{first} {_ONCE}"


def _baseline_wins(sweep: Sweep, best: Trial) -> str:
    others = sum(t.state == "complete" for t in sweep.trials.values() if t is not best)
    first = f"The baseline is the best, with {_numbers(sweep, best)}"
    if others == 0:
        return f"{first}, but no other configuration completed, so it was compared with nothing."
    return f"{first}: of {others} other configurations that completed, none scored higher. {_ONCE}"


def _numbers(sweep: Sweep, trial: Trial) -> str:
    change = sweep.change(trial)
    parts = []
    if trial.single_stream is not None:
        parts.append(
            (f"single stream {words.rate(trial.single_stream)} tok/s", change.single_stream)
        )
    if trial.peak is not None and sweep.peak_is_final(trial):
        value, concurrency = trial.peak
        parts.append((f"peak {words.rate(value)} tok/s at C={concurrency}", change.peak))
    told = [
        text + ("" if more is None else f" ({words.percent(more)} against the baseline)")
        for text, more in parts
    ]
    return ", ".join(told) or "neither single stream nor peak was measured"


def _nothing(sweep: Sweep) -> str:
    """Why there is no winner."""
    if not sweep.trials:
        return "No trial was started, so there is no result."
    running = any(trial.state == "running" for trial in sweep.trials.values())
    first = "No trial has completed" + (" yet" if running and not sweep.ended else "")
    kinds = Counter(t.failure.kind for t in sweep.trials.values() if t.failure)
    why = ", ".join(f"{kind} {count} times" if count > 1 else kind for kind, count in kinds.items())
    reasons = f" Failures: {escaped(why)}." if why else ""
    return f"{first}, so there is no best configuration: {words.counts(sweep)}.{reasons}"


def _fate(base: Trial) -> str:
    state = base.state if base.state == "failed" else f"is {base.state}"
    return f"{state} ({escaped(base.failure.kind)})" if base.failure else state


def _ending(sweep: Sweep) -> str:
    done = sum(t.state not in ("running", "interrupted") for t in sweep.trials.values())
    total = f" of {sweep.started.trials + 1}" if sweep.started else ""
    have = f"{done}{total} trials (the baseline included) have a result"
    if sweep.ended is None:
        return (
            "**The sweep has not ended**: it is still running, or it was killed before it could "
            f"write its end. So far {have}."
        )
    reason = escaped(sweep.ended.reason)
    cut = any(trial.state in ("running", "interrupted") for trial in sweep.trials.values())
    if cut or "interrupt" in reason.lower():
        return f"**The sweep was cut short** ({reason}): {have}."
    if sweep.started is not None and done < sweep.started.trials + 1:
        # No fault as such: a small space may simply have been tried out.
        return f"Fewer trials were run than allowed ({reason}): {have}."
    return ""
