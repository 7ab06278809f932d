"""Holds the settings of the emulated engine against what it knows, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sweeper.engines.emulated.faults import catalog
from sweeper.engines.emulated.profile import load_profile
from sweeper.spec.problems import Problem, suggestion
from sweeper.spec.schema import SpaceFile
from sweeper.spec.values import UNSET


def check(space: SpaceFile) -> Iterator[Problem]:
    """Values of its variables that would end every server at once."""
    for name, wrong in _CHECKS.items():
        fixed = space.engine.env.get(name, UNSET)
        parameter = space.space.env.get(name)
        uses = [(("engine", "env", name), fixed)]
        uses += [(("space", "env", name), each) for each in (parameter and parameter.choices) or []]
        for location, value in uses:
            if value not in (UNSET, "") and (problem := wrong(value)):
                yield Problem(location, *problem)


def _fault(value: Any) -> tuple[str, str] | None:
    if str(value) in catalog():
        return None
    hint = suggestion(str(value), catalog())
    what = f"the emulated engine has no fault {value!r}" + (f"; {hint}" if hint else "")
    return what, "docs/emulated.md lists them."


def _speed(value: Any) -> tuple[str, str] | None:
    try:
        good = float(value) > 0
    except (TypeError, ValueError):
        good = False
    return None if good else (f"a speed is a number above 0, found {value!r}", "")


def _profile(value: Any) -> tuple[str, str] | None:
    try:
        load_profile(str(value))
    except (OSError, ValueError) as error:
        return f"no profile {value!r} can be read: {error}", "docs/emulated.md lists them."
    return None


_CHECKS: Mapping[str, Callable[[Any], tuple[str, str] | None]] = {
    "EMULATED_FAULT": _fault,
    "EMULATED_START_SPEED": _speed,
    "EMULATED_PROFILE": _profile,
}
