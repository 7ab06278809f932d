"""From the measured levels of a trial to one score, and to the constraints that it breaks.

The score is a weighted geometric mean of the objectives: doubling one of them
counts the same whatever its unit and size are, and no baseline is needed to
compare two candidates. An objective that becomes better by being smaller counts
as its reciprocal. Higher is always better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sweeper.spec.schema import Constraint, Objective

Levels = Mapping[int, Mapping[str, float]]
"""Metrics by name, for each concurrency that was measured."""


def value_of(metric: str, levels: Levels) -> float | None:
    """One metric as the file names it; None where it was not measured.

    >>> value_of("peak", {1: {"output_throughput": 80.0}, 8: {"output_throughput": 400.0}})
    400.0
    """
    if metric == "single_stream":
        return levels.get(1, {}).get("output_throughput")
    if metric == "peak":
        found = [m["output_throughput"] for m in levels.values() if "output_throughput" in m]
        return max(found, default=None)
    name, _, level = metric.partition("@")
    return levels.get(int(level), {}).get(name)


def objective_values(objectives: Sequence[Objective], levels: Levels) -> dict[str, float]:
    """The objectives that are known so far, by metric."""
    known = {objective.metric: value_of(objective.metric, levels) for objective in objectives}
    return {metric: value for metric, value in known.items() if value is not None}


def score(objectives: Sequence[Objective], levels: Levels) -> float | None:
    """The score from what is measured so far; None where no objective is known yet.

    Two scores can be compared when the same levels were measured. After early
    rungs the objectives of later ones are left out, for every candidate alike.
    """
    values = objective_values(objectives, levels)
    logarithms, weights = [], []
    for objective in objectives:
        value = values.get(objective.metric)
        if value is None:
            continue
        if value <= 0 or not math.isfinite(value):
            return None  # nothing real has this value; it must not win or lose by it
        sign = 1 if objective.goal == "maximize" else -1
        logarithms.append(sign * objective.weight * math.log(value))
        weights.append(objective.weight)
    return math.exp(sum(logarithms) / sum(weights)) if weights else None


def violations(constraints: Sequence[Constraint], levels: Levels) -> dict[str, float]:
    """By how much each constraint is broken; zero and below is kept.

    A metric that was not measured breaks its constraint: what nobody has seen
    cannot be promised.
    """
    found: dict[str, float] = {}
    for constraint in constraints:
        value = value_of(constraint.metric, levels)
        if constraint.at_most is not None:
            text, over = f"{constraint.metric} at most {constraint.at_most:g}", constraint.at_most
            found[text] = math.inf if value is None else value - over
        elif constraint.at_least is not None:
            text, least = (
                f"{constraint.metric} at least {constraint.at_least:g}",
                constraint.at_least,
            )
            found[text] = math.inf if value is None else least - value
    return found
