"""Profiles are read from YAML, and their rules act on the configurations that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweeper.engines.emulated.profile import Rule, flag_name, load_profile


def rule(**when: Any) -> Rule:
    return Rule(says="x", source="assumed", when={k.replace("__", "."): v for k, v in when.items()})


@pytest.mark.parametrize("name", ["kimi-k2.5-8gpu", "flat", "crashy"])
def test_packaged_profiles_are_valid(name: str) -> None:
    assert load_profile(name).name == name


def test_the_default() -> None:
    assert load_profile("").name == "kimi-k2.5-8gpu"


@pytest.mark.parametrize(
    ("wanted", "given", "met"),
    [
        ("unset", None, True),
        ("unset", False, True),
        ("unset", "triton", False),
        (False, None, True),
        (True, True, True),
        (True, None, False),
        ("flashinfer", "flashinfer", True),
        ("EAGLE*", "EAGLE3", True),
        ("EAGLE*", None, False),
        ("*", None, False),
        (4, 4, True),
        (4, "4", True),
        (["fa3", "fa4"], "fa4", True),
        (["unset", "fa4"], None, True),
        ({"above": 1}, 2, True),
        ({"above": 1}, "2", True),
        ({"above": 1}, 1, False),
        ({"above": 0.5, "below": 0.9}, 0.95, False),
        ({"above": 1}, None, False),
    ],
)
def test_conditions(wanted: Any, given: Any, met: bool) -> None:
    assert rule(**{"args__x-y": wanted}).meets({"x_y": given}, {}) is met
    if not isinstance(given, bool):
        env = {} if given is None else {"X": str(given)}
        assert rule(env__X=wanted).meets({}, env) is met


def test_all_conditions_must_be_met() -> None:
    both = rule(args__a=1, env__B="2")
    assert both.meets({"a": 1}, {"B": "2"})
    assert not both.meets({"a": 1}, {})


def test_a_flag_is_known_by_both_names() -> None:
    assert flag_name("tensor-parallel-size") == flag_name("tp-size") == "tp_size"


@pytest.mark.parametrize(
    ("line", "complains"),
    [
        ("times: {speed: 2}", "no such number: speed"),
        ("when: {attention: x}", "args.NAME or env.NAME"),
        ("wen: {}", "wen"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, line: str, complains: str) -> None:
    parts = {"says": "x", "source": "assumed", "when": "{}"}
    name, _, value = line.partition(": ")
    text = ", ".join(f"{key}: {val}" for key, val in (parts | {name: value}).items())
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ndescription: x\nnoise: 0\nspeculation: {acceptance: 0}\n"
        "server: {step_ms: 1, per_sequence_ms: 0, per_prefill_token_ms: 0, kv_tokens: 9}\n"
        f"rules: [{{{text}}}]\n"
    )
    with pytest.raises(ValidationError, match=complains):
        load_profile(str(path))


def test_no_such_profile() -> None:
    with pytest.raises(FileNotFoundError):
        load_profile("nowhere")
