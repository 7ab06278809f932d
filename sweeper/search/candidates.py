"""Points of the space: the baseline, what exists, what is forbidden, what lies near. Pure."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeper.spec.candidate import Candidate, Value
from sweeper.spec.parameters import Condition, Forbidden, Parameter
from sweeper.spec.schema import Named
from sweeper.spec.values import UNSET

Parameters = Mapping[str, Parameter]
Chooser = Callable[[str, Parameter], Value]
"""Gives a value for a parameter, by its full name."""


def encode(parameter: Parameter, value: Value) -> Any:
    """A value as Optuna stores it.

    Choices stand as JSON text, since Optuna takes ``0``, ``False`` and ``0.0``
    for the same choice, which they are not on a command line.
    """
    return json.dumps(value) if parameter.choices is not None else value


def decode(parameter: Parameter, stored: Any) -> Value:
    """The value that Optuna stored."""
    value: Value = json.loads(stored) if parameter.choices is not None else stored
    return value


def holds(condition: Condition, values: Mapping[str, Value], device: str) -> bool:
    """Whether every part of a condition is true; an absent parameter has no value."""
    known = {**values, "device": device}
    return all(
        name in known and any(_same(known[name], wanted) for wanted in allowed)
        for name, allowed in condition.items()
    )


def build(parameters: Parameters, device: str, choose: Chooser) -> Candidate:
    """A candidate from a chooser that is asked for the parameters that exist, parents first."""
    values: dict[str, Value] = {}
    for name, parameter in parameters.items():
        if holds(parameter.when, values, device):
            values[name] = choose(name, parameter)
    return Candidate(values)


def by_hand(named: Named, parameters: Parameters, device: str) -> Candidate:
    """A candidate that the file names; what it does not name is left alone."""
    given = {f"env.{name}": value for name, value in named.env.items()}
    given |= {f"args.{name}": value for name, value in named.args.items()}

    def choose(name: str, parameter: Parameter) -> Value:
        if name in given:
            value: Value = given[name]
            return value
        # For a flag without a value, "not given" is written as false.
        plain = parameter.choices is not None and UNSET not in parameter.choices
        return False if plain and any(c is False for c in parameter.choices or ()) else UNSET

    return build(parameters, device, choose)


def forbidden(candidate: Candidate, rules: Sequence[Forbidden], device: str) -> Forbidden | None:
    """The first rule of ``forbid`` that the candidate meets."""
    return next((r for r in rules if holds(r.combination, candidate.values, device)), None)


def nearest(
    candidate: Candidate,
    parameters: Parameters,
    device: str,
    accept: Callable[[Candidate], bool],
    rng: random.Random,
    tries: int = 300,
) -> Candidate | None:
    """A candidate close to the given one that ``accept`` takes, or None where there is none.

    It changes one parameter at random, then two, and so on, so that what the
    sampler wanted is kept as far as possible. Where that finds nothing, a space
    without ranges is gone through in full, so that a few allowed points among
    many forbidden ones are found for certain.
    """
    for changes in range(1, len(parameters) + 1):
        for _ in range(tries):
            changed = set(rng.sample(list(parameters), changes))
            found = build(parameters, device, _change(candidate, changed, rng))
            if accept(found):
                return found
    remaining = [found for found in everything(parameters, device, limit=20_000) if accept(found)]
    return rng.choice(remaining) if remaining else None


def _change(candidate: Candidate, changed: set[str], rng: random.Random) -> Chooser:
    def choose(name: str, parameter: Parameter) -> Value:
        if name in changed or name not in candidate.values:
            return random_value(parameter, rng)
        return candidate.values[name]

    return choose


def random_value(parameter: Parameter, rng: random.Random) -> Value:
    """One value of the parameter, each choice and each step as likely as any other."""
    if parameter.choices is not None:
        value: Value = rng.choice(parameter.choices)
        return value
    if (span := parameter.int_range) is not None:
        return rng.randrange(span.low, span.high + 1, span.step)
    assert parameter.float_range is not None
    wide = parameter.float_range
    if wide.step is None:
        return rng.uniform(wide.low, wide.high)
    return wide.low + wide.step * rng.randint(0, int((wide.high - wide.low) / wide.step + 1e-9))


def everything(parameters: Parameters, device: str, limit: int) -> Iterator[Candidate]:
    """Every point of a space of choices, up to ``limit``; nothing where a range is in it."""
    if any(parameter.choices is None for parameter in parameters.values()):
        return
    yield from itertools.islice(_points(list(parameters.items()), {}, device), limit)


def _points(
    left: list[tuple[str, Parameter]], values: dict[str, Value], device: str
) -> Iterator[Candidate]:
    if not left:
        yield Candidate(dict(values))
        return
    (name, parameter), *rest = left
    if not holds(parameter.when, values, device):
        yield from _points(rest, values, device)
        return
    for choice in parameter.choices or ():
        yield from _points(rest, {**values, name: choice}, device)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
