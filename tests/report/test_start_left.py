"""The time left of a start, learned from earlier ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.report.start_left import start_left

FIRST = {"starting": 30.0, "loading weights": 300.0, "capturing graphs": 90.0, "warm-up": 12.0}
LATER = {"starting": 20.0, "loading weights": 100.0, "capturing graphs": 10.0, "warm-up": 2.0}
LATEST = {"starting": 22.0, "loading weights": 120.0, "capturing graphs": 12.0, "warm-up": 2.0}


@pytest.mark.parametrize("done", [None, 0.5])
def test_nothing_was_learned(done: float | None) -> None:
    assert start_left([], "loading weights", 30, done) is None
    # How long the stage will take may be known, but not when it comes.
    assert start_left([FIRST], "profiling", 30, done) is None


def test_the_first_start_counts_while_it_is_the_only_one() -> None:
    assert start_left([FIRST], "loading weights", 100, None) == 200 + 90 + 12
    assert start_left([FIRST, LATER], "loading weights", 60, None) == 40 + 10 + 2
    assert start_left([FIRST, LATER, LATEST], "loading weights", 60, None) == 50 + 11 + 2


def test_the_last_stage() -> None:
    assert start_left([FIRST, LATER], "warm-up", 0.5, None) == 1.5


@pytest.mark.parametrize(
    ("in_stage", "done", "left"),
    [
        (50, 0.5, 50),  # as usual
        (20, 0.5, 50),  # faster
        (80, 0.5, 50),  # slower
        (150, 0.5, 150),  # slower than usual, not than the first
        (400, 0.5, 200),  # slower than ever
        (400, 0.0, 400),
        (60, 1.0, 40),  # all of the bar, but not of the stage
        (60, 2.0, 40),
        (60, -1.0, 100),
    ],
)
def test_progress_within_the_stage(in_stage: float, done: float, left: float) -> None:
    assert start_left([FIRST, LATER], "loading weights", in_stage, done) == left + 12


@pytest.mark.parametrize(
    ("in_stage", "left"), [(99, 1), (100, 0), (101, 199), (299, 1), (301, 0), (10_000, 0)]
)
def test_a_stage_that_takes_longer_than_usual(in_stage: float, left: float) -> None:
    """It may take as long as the first did; and what comes after it is still to come."""
    assert start_left([FIRST, LATER], "loading weights", in_stage, None) == left + 12


def test_configurations_that_go_through_other_stages() -> None:
    """Without graphs there is no capture, with a quiet log hardly a stage is told."""
    without = {"starting": 20.0, "loading weights": 100.0, "warm-up": 30.0}
    quiet = {"starting": 130.0}
    assert start_left([FIRST, without], "loading weights", 0, None) == 100 + 30
    # Only the first start knows how long a capture takes.
    assert start_left([FIRST, without], "capturing graphs", 0, None) == 90 + 30
    assert start_left([without, FIRST], "capturing graphs", 0, None) == 90 + 12
    assert start_left([FIRST, quiet, LATER], "loading weights", 0, None) == 100 + 6


_START = st.dictionaries(st.sampled_from(list(FIRST)), st.floats(0, 1e4))


@given(
    st.lists(_START, max_size=5),
    st.sampled_from(list(FIRST)),
    st.floats(0, 1e5),
    st.none() | st.floats(0, 1),
)
def test_never_negative(
    earlier: list[dict[str, float]], stage: str, in_stage: float, done: float | None
) -> None:
    left = start_left(earlier, stage, in_stage, done)
    if left is None:
        assert all(stage not in start for start in earlier)
    else:
        assert left >= 0
