"""The best configuration of a sweep as YAML, for people and for scripts."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from sweeper.records.sweep import Sweep, Trial
from sweeper.report.words import EMULATED


def best(sweep: Sweep) -> str | None:
    """The text of ``best.yaml``; None where no trial completed."""
    winner = sweep.best
    if winner is None:
        return None
    comments = ["# Output tokens per second. Each number was measured once."]
    if sweep.started and sweep.started.emulated:
        comments.insert(0, f"# {EMULATED}.")
    return "\n".join([*comments, _yaml(_document(sweep, winner))])


def _document(sweep: Sweep, winner: Trial) -> dict[str, Any]:
    started, launched, base = sweep.started, winner.launched, sweep.baseline
    change = sweep.change(winner)
    document = {
        "sweep": started.sweep if started else None,
        "trial": winner.number,
        "label": winner.label,
        "is_baseline": winner.baseline,
        "score": _rounded(winner.score, 6),
        "model": started.model if started else None,
        "engine": started.engine if started else None,
        "engine_version": started.engine_version if started else None,
        "device": started.device if started else None,
        "emulated": started.emulated if started else None,
        "values": _split(winner.values),
        **_numbers(winner),
        "baseline": {"trial": base.number, "state": base.state, **_numbers(base)} if base else None,
        "against_baseline_percent": _known(
            {
                "single_stream": _rounded(change.single_stream, 2),
                "peak": _rounded(change.peak, 2),
            }
        )
        or None,
        "command": list(launched.command) if launched else None,
        "env": dict(launched.env) if launched else None,
    }
    return _known(document)


def _numbers(trial: Trial) -> dict[str, Any]:
    value, concurrency = trial.peak or (None, None)
    return _known(
        {
            "single_stream": _rounded(trial.single_stream, 3),
            "peak": _rounded(value, 3),
            "peak_concurrency": concurrency,
        }
    )


def _split(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """``env.A`` and ``args.b`` as the two sections that a space file has."""
    sections: dict[str, dict[str, Any]] = {"env": {}, "args": {}}
    for name, value in values.items():
        section, _, rest = name.partition(".")
        sections.setdefault(section, {})[rest] = value
    return sections


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is absent was not measured."""
    return {name: value for name, value in values.items() if value is not None}


def _yaml(document: dict[str, Any]) -> str:
    writer = YAML()
    writer.width = 10**6  # a long value stays on its line
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(_quoted(document), stream)
    return stream.getvalue()


def _key(name: str) -> str:
    """A name as it is, and in quotes where YAML 1.1 takes it for a truth value."""
    truth = name.lower() in ("y", "n", "yes", "no", "on", "off")
    return DoubleQuotedScalarString(name) if truth else name


def _quoted(value: Any) -> Any:
    """Every text in quotes: readers of YAML 1.1 take a bare ``on`` or ``12:30`` for no text."""
    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    if isinstance(value, Mapping):
        return {_key(name): _quoted(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_quoted(item) for item in value]
    return value
