"""The Optuna study behind a sweep: what is proposed, and what Optuna is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from spaces import make_space

from sweeper.errors import InputError
from sweeper.search.study import Proposal, SweepStudy

SAMPLERS = ["tpe", "random", "qmc", "nsga2", "brute_force"]


def study(tmp_path: Path, **fields: Any) -> SweepStudy:
    return SweepStudy(make_space(**fields), "cuda", tmp_path / "optuna.journal")


def stored(tmp_path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "optuna.journal")))
    return optuna.load_study(study_name="t", storage=storage).trials


def take(found: Proposal | None) -> Proposal:
    assert found is not None
    return found


def test_the_baseline_comes_first(tmp_path: Path) -> None:
    first = take(study(tmp_path).propose())
    assert (first.number, first.baseline) == (0, True)
    assert first.candidate.values == {"args.disable-custom-all-reduce": False}


def test_the_candidates_that_the_file_names_come_next(tmp_path: Path) -> None:
    named = {"args": {"disable-custom-all-reduce": True}, "env": {"NCCL_PROTO": "Simple"}}
    s = study(tmp_path, search={"first": [{}, named]})  # the first is the baseline once more
    take(s.propose())
    second = take(s.propose())
    assert second.candidate.values == {
        "args.disable-custom-all-reduce": True,
        "env.NCCL_PROTO": "Simple",
    }


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_candidate_is_proposed_once_and_then_none(tmp_path: Path, sampler: str) -> None:
    s = study(tmp_path, search={"sampler": sampler})
    keys = []
    while proposal := s.propose():
        keys.append(proposal.candidate.key())
        s.complete(proposal.number, 1.0 + proposal.number, {})
    # Two values of the parent, and two more of the child that really set something.
    assert len(keys) == len(set(keys)) == 4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_forbidden_candidate_is_never_proposed_and_the_rest_is_found(
    tmp_path: Path, sampler: str
) -> None:
    names = "abcd"
    s = study(
        tmp_path,
        space={
            "args": {n: [0, 1, 2, 3] for n in names},
            # All but the four points of one line.
            "forbid": [{"combination": {f"args.{n}": [1, 2, 3]}} for n in names[1:]],
        },
        search={"sampler": sampler},
    )
    found = []
    s.propose()
    while proposal := s.propose():
        found.append(proposal.candidate.values)
        s.fail(proposal.number)
    assert sorted(v["args.a"] for v in found) == [0, 1, 2, 3]
    assert all(v[f"args.{n}"] == 0 for v in found for n in names[1:])


def test_optuna_is_told_what_happened(tmp_path: Path) -> None:
    s = study(tmp_path, search={"pruner": {"name": "threshold", "args": {"lower": 10.0}}})
    told = {}
    for score, what in [(50.0, "complete"), (5.0, "pruned"), (None, "failed")]:
        proposal = take(s.propose())
        told[proposal.number] = what
        if what == "complete":
            assert not s.report(proposal.number, 0, 1.0)  # the baseline is never pruned
            s.complete(proposal.number, score or 0.0, {"ttft": 3.0, "other": math.inf})
        elif what == "pruned":
            assert s.report(proposal.number, 0, 5.0)
            s.prune(proposal.number)
        else:
            s.fail(proposal.number)
    by_number = {t.user_attrs["trial"]: t for t in stored(tmp_path) if "trial" in t.user_attrs}
    assert by_number[0].state == TrialState.COMPLETE
    assert by_number[0].value == 50.0
    assert by_number[0].constraints == {"ttft": 3.0, "other": 1e9}
    assert by_number[1].state == TrialState.PRUNED
    assert by_number[1].intermediate_values == {0: 5.0}
    assert by_number[2].state == TrialState.FAIL


def test_the_median_pruner_drops_a_poor_candidate_early(tmp_path: Path) -> None:
    s = study(tmp_path, space={"args": {"a": list(range(20))}})
    for _ in range(5):
        proposal = take(s.propose())
        assert not s.report(proposal.number, 0, 100.0)
        s.complete(proposal.number, 100.0, {})
    poor, good = take(s.propose()), take(s.propose())
    assert s.report(poor.number, 0, 50.0)
    assert not s.report(good.number, 0, 120.0)


def test_a_baseline_outside_the_choices_is_measured_and_not_learned_from(tmp_path: Path) -> None:
    s = study(tmp_path, space={"args": {"a": [1, 2], "b": [3, 4]}}, baseline={"args": {"a": 2}})
    first = take(s.propose())
    assert first.candidate.values == {"args.a": 2, "args.b": "unset"}
    s.complete(first.number, 1.0, {})
    assert stored(tmp_path)[0].params == {"args.a": "2"}


def test_the_same_seed_proposes_the_same(tmp_path: Path) -> None:
    def run(folder: Path) -> list[str]:
        folder.mkdir()
        s = study(
            folder,
            space={"args": {"a": list(range(50)), "b": {"float": {"low": 0.1, "high": 9}}}},
            search={"seed": 7},
        )
        found = []
        for score in range(12):
            proposal = take(s.propose())
            found.append(proposal.candidate.key())
            s.complete(proposal.number, 1.0 + score, {})
        return found

    assert run(tmp_path / "one") == run(tmp_path / "two")


@pytest.mark.parametrize(
    "search",
    [
        {"sampler": {"name": "tpe", "args": {"no_such": 1}}},
        {"pruner": {"name": "threshold"}},
        {"pruner": {"name": "percentile", "args": {"percentile": 400.0}}},
    ],
)
def test_arguments_that_optuna_does_not_take(tmp_path: Path, search: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        study(tmp_path, search=search)
    assert "It takes" in str(caught.value)


def test_the_sampler_keeps_away_from_what_does_not_run(tmp_path: Path) -> None:
    """Half of the space dies at the start. Told as failed, Optuna would learn nothing from it."""
    space = make_space(
        space={
            "args": {
                "a": ["dies", "runs"],
                "x": {"int": {"low": 0, "high": 1000}},
            }
        },
        search={"trials": 60},
    )
    study = SweepStudy(space, "cuda", None)
    dead = []
    for _ in range(60):
        proposal = study.propose()
        assert proposal is not None
        if proposal.candidate.values["args.a"] == "dies":
            study.avoid(proposal.number)
            dead.append(proposal.number)
        else:
            study.complete(proposal.number, 100.0, {})
    assert len([number for number in dead if number >= 30]) < 10
