"""Faults of a search that show on paper, before a server starts."""

from __future__ import annotations

from typing import Any

import pytest
from spaces import make_space

from sweeper.search.rehearsal import rehearse


@pytest.mark.parametrize(
    ("fields", "location", "word"),
    [
        (
            {"search": {"sampler": {"name": "tpe", "args": {"n_startup_trials": "abc"}}}},
            ("search",),
            "TypeError",
        ),
        (
            {"search": {"sampler": {"name": "tpe", "args": {"n_startup": 5}}}},
            ("search", "sampler", "args"),
            "n_startup",
        ),
        ({"search": {"pruner": "threshold"}}, ("search", "pruner", "args"), "Threshold"),
        (
            {
                "space": {
                    "args": {"a": [1, 2]},
                    "forbid": [{"combination": {"args.a": [1, 2]}}],
                }
            },
            ("space",),
            "nothing is left",
        ),
    ],
)
def test_a_fault_is_found(fields: dict[str, Any], location: tuple[str, ...], word: str) -> None:
    (problem,) = rehearse(make_space(**fields), "cuda")
    assert problem.location == location
    assert word in problem.what


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "nsga2", "brute_force"])
def test_a_good_search_has_none(sampler: str) -> None:
    space = make_space(space={"args": {"a": list(range(50))}}, search={"sampler": sampler})
    assert list(rehearse(space, "cuda")) == []
