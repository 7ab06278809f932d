"""Scores and constraints from measured levels."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.search.objectives import objective_values, score, value_of, violations
from sweeper.spec.schema import Constraint, Objective

Levels = dict[int, dict[str, float]]
DEFAULT = [Objective(metric="single_stream"), Objective(metric="peak")]


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("single_stream", 50.0),
        ("peak", 200.0),
        ("ttft_p95_ms@4", 400.0),
        ("ttft_p95_ms@8", None),
        ("itl_mean_ms@4", None),
    ],
)
def test_a_metric_is_found_or_missing(levels: Levels, metric: str, value: float | None) -> None:
    assert value_of(metric, levels) == value


def test_nothing_measured_is_no_score() -> None:
    assert value_of("peak", {}) is None
    assert score(DEFAULT, {}) is None
    assert objective_values(DEFAULT, {}) == {}


def test_the_score_is_the_geometric_mean(levels: Levels) -> None:
    assert score(DEFAULT, levels) == pytest.approx(100.0)
    weighted = [Objective(metric="single_stream", weight=3), Objective(metric="peak")]
    assert score(weighted, levels) == pytest.approx((50**3 * 200) ** 0.25)


def test_smaller_is_better_counts_as_the_reciprocal(levels: Levels) -> None:
    fast = [Objective(metric="ttft_p95_ms@4", goal="minimize")]
    better = {4: {"ttft_p95_ms": 200.0}}
    before, after = score(fast, levels), score(fast, better)
    assert before is not None
    assert after == pytest.approx(2 * before)


def test_an_objective_of_a_later_level_is_left_out_until_it_is_known(levels: Levels) -> None:
    late = [Objective(metric="single_stream"), Objective(metric="output_throughput@4")]
    assert score(late, {1: levels[1]}) == pytest.approx(50.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_value_has_no_score(value: float) -> None:
    assert score(DEFAULT, {1: {"output_throughput": value}}) is None


@pytest.mark.parametrize(
    ("limit", "over"),
    [
        ({"at_most": 300.0}, 100.0),
        ({"at_most": 500.0}, -100.0),
        ({"at_least": 500.0}, 100.0),
        ({"at_least": 300.0}, -100.0),
    ],
)
def test_constraints_say_by_how_much(levels: Levels, limit: dict[str, Any], over: float) -> None:
    constraint = Constraint(metric="ttft_p95_ms@4", **limit)
    assert list(violations([constraint], levels).values()) == [pytest.approx(over)]
    assert list(violations([constraint], {}).values()) == [math.inf]


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.floats(1.01, 100))
def test_a_gain_of_one_objective_always_raises_the_score(
    single: float, more: float, factor: float
) -> None:
    before = score(DEFAULT, {1: {"output_throughput": single}, 4: {"output_throughput": more}})
    after = score(
        DEFAULT,
        {1: {"output_throughput": single * factor}, 4: {"output_throughput": more * factor}},
    )
    assert before is not None
    assert after == pytest.approx(before * factor)
