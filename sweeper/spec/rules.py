"""Rules that tie fields of the file together; each is a pure function of the space."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.spec.parameters import Condition, Parameter
from sweeper.spec.problems import Problem, suggestion
from sweeper.spec.schema import Named, SpaceFile
from sweeper.spec.yaml_lines import Location

DEVICES = ("cuda", "cpu")
LEVEL_METRICS = (
    "output_throughput",
    "request_throughput",
    "accept_length",
    *(
        f"{name}_{stat}_ms"
        for name in ("ttft", "tpot", "itl", "e2e")
        for stat in ("mean", "p50", "p90", "p95", "p99")
    ),
)
TRIAL_METRICS = ("single_stream", "peak")

# The sweeper chooses these for each server, so that trials cannot meet each
# other's servers and nothing listens beyond this machine.
OWN_ARGS = {
    "model-path": 'give it as "model" at the top of the file',
    "model": 'give it as "model" at the top of the file',
    "host": "servers of a sweep listen on 127.0.0.1 only",
    "port": "each server gets a free port of its own",
    "nccl-port": "each server gets a free port of its own",
    "served-model-name": "it is how the sweeper knows its own server again",
    "config": "every flag must be in this file, or the record would not be the truth",
}
OWN_ENV = {
    "CUDA_VISIBLE_DEVICES": "Ray decides which GPUs a server sees",
    "SGLANG_PLATFORM": "it is chosen by the machine: nothing on a GPU, the CPU platform without one",
}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


def parameters(space: SpaceFile) -> dict[str, Parameter]:
    """All parameters by full name (``env.NAME``, ``args.name``), parents before children.

    Raises:
        ValueError: where ``when`` goes in a circle; the message names it.
    """
    found = {f"env.{name}": p for name, p in space.space.env.items()}
    found |= {f"args.{name}": p for name, p in space.space.args.items()}
    ordered: dict[str, Parameter] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(
                "when goes in a circle: " + " -> ".join((*path[path.index(name) :], name))
            )
        if name in ordered or name not in found:
            return
        for parent in found[name].when:
            visit(parent, (*path, name))
        ordered[name] = found[name]

    for name in found:
        visit(name, ())
    return ordered


def check(space: SpaceFile) -> list[Problem]:
    """Every problem that the schema alone cannot see."""
    return [
        *_names(space),
        *_references(space),
        *_by_hand(space),
        *_metrics(space),
    ]


def _names(space: SpaceFile) -> Iterator[Problem]:
    places: list[tuple[Location, Mapping[str, Any]]] = [
        (("space", "env"), space.space.env),
        (("engine", "env"), space.engine.env),
        (("space", "args"), space.space.args),
        (("engine", "args"), space.engine.args),
    ]
    for location, section in places:
        is_env = location[-1] == "env"
        own = OWN_ENV if is_env else OWN_ARGS
        for name in section:
            here = (*location, name)
            if name.startswith("-"):
                yield Problem(
                    here, "write flags without the leading dashes", f"{name.lstrip('-')}:"
                )
            elif not (_ENV_NAME if is_env else _ARG_NAME).fullmatch(name):
                yield Problem(
                    here,
                    f"{name!r} is no name of {'an environment variable' if is_env else 'a flag'}",
                )
            elif name in own or (is_env and name.startswith("SWEEPER_")):
                yield Problem(
                    here,
                    "set by the sweeper itself",
                    own.get(name, "names with SWEEPER_ are its own"),
                )
            if is_env:
                yield from _no_booleans(here, section[name])
    for side in ("env", "args"):
        for name in set(getattr(space.space, side)) & set(getattr(space.engine, side)):
            yield Problem(
                ("engine", side, name),
                f"also in space.{side}: a value cannot be both fixed and searched",
                "Remove one of the two.",
            )


def _no_booleans(here: Location, value: Any) -> Iterator[Problem]:
    given = value.choices or [] if isinstance(value, Parameter) else [value]
    if any(isinstance(item, bool) for item in given):
        yield Problem(
            here,
            "environment variables are text; true and false are not defined there",
            'Write what the program reads, mostly "1" or "0".',
        )


def _references(space: SpaceFile) -> Iterator[Problem]:
    named = {f"env.{n}": p for n, p in space.space.env.items()} | {
        f"args.{n}": p for n, p in space.space.args.items()
    }
    for name, parameter in named.items():
        here = ("space", *name.split(".", 1), "when")
        yield from _condition(here, parameter.when, {k: v for k, v in named.items() if k != name})
    for index, forbidden in enumerate(space.space.forbid):
        yield from _condition(
            ("space", "forbid", index, "combination"), forbidden.combination, named
        )
    try:
        parameters(space)
    except ValueError as error:
        yield Problem(("space",), str(error))


def _condition(
    here: Location,
    condition: Condition,
    named: Mapping[str, Parameter],
) -> Iterator[Problem]:
    for name, wanted in condition.items():
        if name == "device":
            for value in wanted:
                if value not in DEVICES:
                    yield Problem(
                        (*here, name), f"{value!r} is no device", "allowed: " + ", ".join(DEVICES)
                    )
        elif name not in named:
            hint = suggestion(name, [*named, "device"])
            yield Problem(
                (*here, name),
                f'there is no other parameter "{name}"' + (f"; {hint}" if hint else ""),
                'Names are written "env.NAME" or "args.name"; "device" is cuda or cpu.',
            )
        else:
            for value in wanted:
                if not can_take(named[name], value):
                    yield Problem(
                        (*here, name), f"{name} can never be {value!r}", _values(named[name])
                    )


def can_take(parameter: Parameter, value: Any) -> bool:
    """Whether ``value`` is one that the parameter may take."""
    if parameter.choices is not None:
        return any(type(c) is type(value) and c == value for c in parameter.choices)
    span = parameter.int_range or parameter.float_range
    assert span is not None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if parameter.int_range is not None and value != int(value):
        return False
    if not span.low <= value <= span.high:
        return False
    steps = (value - span.low) / span.step if span.step else 0.0
    return abs(steps - round(steps)) < 1e-9


def _values(parameter: Parameter) -> str:
    if parameter.choices is not None:
        return "its choices: " + ", ".join(map(repr, parameter.choices))
    span = parameter.int_range or parameter.float_range
    assert span is not None
    return f"its range: {span.low} to {span.high}" + (
        f" in steps of {span.step}" if span.step else ""
    )


def _by_hand(space: SpaceFile) -> Iterator[Problem]:
    """Candidates that the file names: the baseline, and those to be tried first."""
    places: list[tuple[Location, Named]] = [(("baseline",), space.baseline)]
    places += [(("search", "first", i), named) for i, named in enumerate(space.search.first)]
    for location, candidate in places:
        for side in ("env", "args"):
            known = getattr(space.space, side)
            for name in getattr(candidate, side):
                if name not in known:
                    hint = suggestion(name, known)
                    yield Problem(
                        (*location, side, name),
                        f"not a parameter of space.{side}" + (f"; {hint}" if hint else ""),
                        f"What every server shares goes to engine.{side}.",
                    )


def _metrics(space: SpaceFile) -> Iterator[Problem]:
    sections: list[tuple[str, list[Any]]] = [
        ("objectives", space.objectives),
        ("constraints", space.constraints),
    ]
    for section, items in sections:
        for index, item in enumerate(items):
            here = (section, index, "metric")
            if item.metric in TRIAL_METRICS:
                continue
            name, at, level = item.metric.partition("@")
            if name not in LEVEL_METRICS:
                hint = suggestion(name, [*TRIAL_METRICS, *LEVEL_METRICS])
                yield Problem(
                    here,
                    f'unknown metric "{name}"' + (f"; {hint}" if hint else ""),
                    "known: single_stream, peak, and at a level (name@level) output_throughput, "
                    "request_throughput, accept_length and ttft, tpot, itl, e2e with _mean_ms, _p50_ms, "
                    "_p90_ms, _p95_ms, _p99_ms",
                )
            elif not at or level not in map(str, space.workload.concurrency):
                levels = ", ".join(f"{name}@{c}" for c in space.workload.concurrency)
                yield Problem(
                    here,
                    "a metric of a level needs one of the workload's levels",
                    f"allowed: {levels}",
                )
            if section == "objectives" and name.endswith("_ms") and item.goal == "maximize":
                yield Problem(
                    here, "a time would be made longer: its goal is to maximize", "goal: minimize"
                )
