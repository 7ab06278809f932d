"""Points of a space: existence, baseline, forbidden ones, the nearest allowed one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaces import make_space

from sweeper.search import candidates as c
from sweeper.spec.candidate import Candidate
from sweeper.spec.parameters import Forbidden, Parameter
from sweeper.spec.rules import can_take, parameters

CHILD = "env.NCCL_PROTO"
PARENT = "args.disable-custom-all-reduce"


def test_a_child_exists_only_under_its_parents_value() -> None:
    found = [p.values for p in c.everything(parameters(make_space()), "cuda", 100)]
    assert found == [
        {PARENT: False},
        {PARENT: True, CHILD: "unset"},
        {PARENT: True, CHILD: "LL"},
        {PARENT: True, CHILD: "Simple"},
    ]


def test_a_parameter_of_another_device_does_not_exist() -> None:
    space = make_space(
        space={"args": {"a": [1, 2], "b": {"choices": [1, 2], "when": {"device": "cuda"}}}}
    )
    assert len(list(c.everything(parameters(space), "cpu", 100))) == 2
    assert len(list(c.everything(parameters(space), "cuda", 100))) == 4


def test_everything_is_nothing_where_a_range_is_in_the_space() -> None:
    space = make_space(space={"args": {"a": {"int": {"low": 1, "high": 3}}}})
    assert list(c.everything(parameters(space), "cuda", 100)) == []


@pytest.mark.parametrize(
    ("choices", "given", "expected"),
    [
        (["unset", 1], {}, "unset"),
        ([False, True], {}, False),
        ([True, False], {"a": True}, True),
        ([1, 2], {}, "unset"),
        ([1, 2], {"a": 7}, 7),
    ],
)
def test_the_baseline_leaves_a_switch_alone_unless_told(
    choices: list[Any], given: dict[str, Any], expected: Any
) -> None:
    space = make_space(space={"args": {"a": choices}}, baseline={"args": given})
    found = c.by_hand(space.baseline, parameters(space), "cuda")
    assert found.values == {"args.a": expected}


@pytest.mark.parametrize("value", [0, False, 1.5, "LL", "0"])
def test_a_choice_comes_back_from_optuna_as_it_was(value: Any) -> None:
    parameter = Parameter.model_validate({"choices": [0, False, 1.5, "LL", "0"]})
    back = c.decode(parameter, c.encode(parameter, value))
    assert (type(back), back) == (type(value), value)


def test_true_is_not_one() -> None:
    assert c.holds({"args.a": [True]}, {"args.a": True}, "cuda")
    assert not c.holds({"args.a": [1]}, {"args.a": True}, "cuda")
    assert not c.holds({"args.a": [True]}, {}, "cuda")
    assert c.holds({"device": ["cpu"]}, {}, "cpu")


def test_forbidden_needs_every_part_of_the_combination() -> None:
    rule = Forbidden.model_validate({"combination": {"args.a": 1, "args.b": [2, 3]}})
    assert c.forbidden(Candidate({"args.a": 1, "args.b": 3}), [rule], "cuda") is rule
    assert c.forbidden(Candidate({"args.a": 1, "args.b": 4}), [rule], "cuda") is None
    assert c.forbidden(Candidate({"args.a": 1}), [rule], "cuda") is None


def test_the_nearest_changes_as_little_as_possible() -> None:
    space = make_space(space={"args": {n: [0, 1, 2, 3] for n in "abcdef"}})
    start = Candidate({f"args.{n}": 0 for n in "abcdef"})
    found = c.nearest(
        start, parameters(space), "cuda", lambda f: f.values != start.values, random.Random(1)
    )
    assert found is not None
    assert sum(v != 0 for v in found.values.values()) == 1


def test_the_nearest_finds_the_one_allowed_point_among_thousands() -> None:
    space = make_space(space={"args": {n: list(range(8)) for n in "abcde"}})
    wanted = {"args.a": 7, "args.b": 6, "args.c": 5, "args.d": 4}
    start = Candidate({f"args.{n}": 0 for n in "abcde"})
    space_4 = {k: v for k, v in parameters(space).items() if k != "args.e"}
    found = c.nearest(
        start, space_4, "cuda", lambda f: f.values == wanted, random.Random(1), tries=1
    )
    assert found is not None
    assert found.values == wanted


def test_the_nearest_says_when_there_is_none() -> None:
    start = Candidate({PARENT: False})
    ps = parameters(make_space())
    assert c.nearest(start, ps, "cuda", lambda _: False, random.Random(1)) is None


@given(st.integers(0, 10_000), st.sampled_from([0.25, None]), st.booleans())
def test_random_values_are_values_of_the_parameter(
    seed: int, step: float | None, whole: bool
) -> None:
    spec: dict[str, Any] = (
        {"int": {"low": -3, "high": 11, "step": 2}}
        if whole
        else {"float": {"low": 0.5, "high": 2.0, "step": step}}
    )
    parameter = Parameter.model_validate(spec)
    assert can_take(parameter, c.random_value(parameter, random.Random(seed)))
