"""The search spaces that come with the project load, teach, and can be rehearsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.search.candidates import build, by_hand, holds
from sweeper.spec.load import load_space
from sweeper.spec.rules import DEVICES, parameters

FOLDER = Path(__file__).parents[2] / "search_spaces"
FILES = sorted(FOLDER.glob("*.yaml"))
NEED_A_GPU = {"speculative", "kimi-k2.5-8gpu"}
EMULATED = {"emulated-faults"}
REHEARSALS = [path for path in FILES if path.stem not in NEED_A_GPU | EMULATED]


def by_name(path: Path) -> str:
    return path.stem


def test_the_files_are_there() -> None:
    expected = {"nccl", "attention", "cuda-graphs", *NEED_A_GPU, *EMULATED}
    assert expected <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
def test_it_loads_and_says_what_it_is_for(path: Path, device: str) -> None:
    space = load_space(path, device=device).space
    assert space.name == path.stem
    assert space.description.endswith(".")


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_it_begins_with_its_schema_and_a_comment(path: Path) -> None:
    first, _, third, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=schema.json"
    assert third.startswith("# ")


@pytest.mark.parametrize("path", FILES, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
def test_the_baseline_is_allowed(path: Path, device: str) -> None:
    space = load_space(path, device=device).space
    start = by_hand(space.baseline, parameters(space), device)
    assert not [r for r in space.space.forbid if holds(r.combination, start.values, device)]


@pytest.mark.parametrize("path", REHEARSALS, ids=by_name)
def test_a_laptop_has_a_small_load_and_something_to_search(path: Path) -> None:
    space = load_space(path, device="cpu").space
    assert space.model == "embedded"
    assert space.workload.concurrency == [1, 4]
    assert space.search.trials == 6
    found = parameters(space)
    here = build(found, "cpu", lambda name, parameter: (parameter.choices or ["unset"])[0])
    assert len(here.values) >= 2
    assert "args.attention-backend" not in here.values  # it must stay torch_native


def test_eagle3_never_starts_without_a_drafter() -> None:
    for path in FILES:
        found = parameters(load_space(path, device="cuda").space)
        algorithm = found.get("args.speculative-algorithm")
        if algorithm is None or "EAGLE3" not in (algorithm.choices or []):
            continue
        drafter = found["args.speculative-draft-model-path"]
        assert drafter.when == {"args.speculative-algorithm": ["EAGLE3"]}
        assert "unset" not in (drafter.choices or [])


def test_a_speculative_server_is_never_held_at_48() -> None:
    for path in FILES:
        space = load_space(path, device="cuda").space
        if "speculative-algorithm" in space.space.args:
            assert space.engine.args["max-running-requests"] == max(space.workload.concurrency)
