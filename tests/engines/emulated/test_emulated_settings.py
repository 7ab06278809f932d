"""Settings of the emulated engine that cannot be are told before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeper.engines.emulated.check import check
from sweeper.engines.emulated.faults import catalog
from sweeper.spec.schema import SpaceFile


def space(env: dict[str, Any], choices: list[Any] | None = None) -> SpaceFile:
    return SpaceFile.model_validate(
        {
            "name": "t",
            "model": "none",
            "engine": {"kind": "emulated", "env": env},
            "space": {"env": {"EMULATED_FAULT": choices or ["unset", "bad_flag"]}},
        }
    )


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"EMULATED_START_SPEED": 0}, "above 0"),
        ({"EMULATED_START_SPEED": "fast"}, "above 0"),
        ({"EMULATED_PROFILE": "kimi"}, "no profile"),
        ({"EMULATED_FAULT": "bad_flagg"}, "did you mean"),
    ],
)
def test_what_cannot_be(env: dict[str, Any], words: str) -> None:
    (problem,) = check(space(env))
    assert words in problem.what
    assert problem.location == ("engine", "env", next(iter(env)))


def test_choices_are_looked_at_too() -> None:
    (problem,) = check(space({}, ["unset", "zombie", "BAD"]))
    assert problem.location == ("space", "env", "EMULATED_FAULT")


def test_good_settings() -> None:
    good = {"EMULATED_START_SPEED": "300", "EMULATED_PROFILE": "flat", "EMULATED_FAULT": "zombie"}
    assert list(check(space(good))) == []


def test_the_page_names_every_fault_with_its_class() -> None:
    page = (Path(__file__).parents[3] / "docs" / "emulated.md").read_text(encoding="utf-8")
    for fault in catalog().values():
        kind = f"`{fault.kind}`" if fault.kind else "(completes)"
        assert f"| `{fault.name}` | {kind} |" in page
