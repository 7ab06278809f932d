"""The small print of a summary: how it was measured, on what, and where the time went."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.records.events import SweepStarted
from sweeper.records.sweep import Sweep, Trial
from sweeper.report import words
from sweeper.report.markdown import code
from sweeper.report.markdown import words as escaped

# Variables of the user's shell, recorded for an export. Long, and no fact about the machine.
_SKIPPED = ("shell",)


def how_measured(sweep: Sweep) -> str:
    """What was run on what, and what of it was real."""
    started = sweep.started
    if started is None:
        return "The record has no beginning, so nothing is known of this."
    levels = ", ".join(map(str, started.levels))
    lines = [
        f"Engine: {escaped(words.engine(sweep))}",
        f"Model: {code(started.model)}, {escaped(started.model_description)}",
        f"Device: {escaped(started.device)}",
        f"What is real: {_real(started, words.engine(sweep))}",
        f"Load: C = {levels} requests in flight, closed loop, one level after the other",
        f"Score: {', '.join(map(_objective, started.objectives)) or words.MISSING}",
        *(f"Limit: {_constraint(each)}" for each in started.constraints),
        "Repeats: none. Each configuration was measured once, on one start of its server",
    ]
    return _listed(lines)


def _real(started: SweepStarted, engine: str) -> str:
    if started.emulated:
        return f"**{words.EMULATED}.** They say nothing about any machine"
    if started.device == "cpu":
        return (
            f"{escaped(engine)} itself, on the CPU. No NCCL took part. **These figures do not "
            "carry over to GPUs**"
        )
    return f"{escaped(engine)} itself, on the device named above"


def _objective(each: Mapping[str, Any]) -> str:
    weight = each.get("weight", 1)
    more = "" if weight == 1 else f", weight {weight}"
    return escaped(f"{each.get('metric', '?')} ({each.get('goal', 'maximize')}{more})")


def _constraint(each: Mapping[str, Any]) -> str:
    limits = [
        f"{word} {each[key]:g}"
        for key, word in (("at_most", "at most"), ("at_least", "at least"))
        if each.get(key) is not None
    ]
    return escaped(f"{each.get('metric', '?')} {' and '.join(limits)}")


def environment(sweep: Sweep) -> str:
    """The facts about the machine that were recorded, one a line."""
    facts = sweep.started.environment if sweep.started else {}
    facts = {name: value for name, value in facts.items() if name not in _SKIPPED}
    lines = [f"{escaped(name)}: {code(value) or words.MISSING}" for name, value in _flat(facts)]
    return _listed(lines) or "Nothing was recorded."


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Leaves with their dotted names; a list of plain values is one leaf."""
    inner: Mapping[str, Any] | None = None
    if isinstance(value, Mapping):
        inner = value
    elif isinstance(value, list | tuple) and any(isinstance(i, Mapping | list) for i in value):
        inner = {str(index): item for index, item in enumerate(value)}
    if inner:
        for key, item in inner.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and name == "command":
        yield name, shlex.join(map(str, value))  # to be run again as it stands
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value))
    else:
        yield name, "" if value is None or inner is not None else str(value)


def time_spent(sweep: Sweep) -> str:
    """Counts, and the time of all trials by what it went into."""
    ended = [trial for trial in sweep.trials.values() if trial.ended]
    lines = [f"{len(sweep.trials)} trials: {words.counts(sweep) or 'none'}"]
    if not ended:
        return _listed(lines)
    parts = {
        "Starting servers": sum(t.start_seconds or 0.0 for t in ended),
        "Measuring, with warming up": sum(map(_measuring, ended)),
        "Stopping servers": sum(t.stop_seconds or 0.0 for t in ended),
        "Trials that ended without a result, beyond the above": sum(
            _rest(t) for t in ended if not _went_through(t)
        ),
        "The sweeper itself, in trials that went through": sum(
            _rest(t) for t in ended if _went_through(t)
        ),
    }
    total = sum(_length(trial) for trial in ended)
    lines.append(f"All ended trials: {words.duration(total)}")
    lines += [
        f"{name}: {words.duration(seconds)} ({100 * seconds / total:.0f} %)"
        for name, seconds in parts.items()
        if seconds > 0 and total > 0
    ]
    return _listed(lines)


def _went_through(trial: Trial) -> bool:
    """Whether each part of the trial told how long it took. A start that failed did not."""
    return (
        trial.state not in ("failed", "interrupted")
        and trial.failure is None
        and trial.start_seconds is not None
        and trial.stop_seconds is not None
    )


def _length(trial: Trial) -> float:
    return (trial.ended - trial.started).total_seconds() if trial.ended else 0.0


def _measuring(trial: Trial) -> float:
    return sum(level.seconds + level.warmup_seconds for level in trial.levels.values())


def _rest(trial: Trial) -> float:
    known = (trial.start_seconds or 0.0) + _measuring(trial) + (trial.stop_seconds or 0.0)
    return max(0.0, _length(trial) - known)


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
