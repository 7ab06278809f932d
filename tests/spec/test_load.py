"""A wrong file gives one screen with line, field, fault and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.errors import InputError
from sweeper.spec.load import load_space
from sweeper.spec.parameters import Parameter
from sweeper.spec.rules import can_take

GOOD = """\
name: demo
model: embedded
space:
  args:
    disable-custom-all-reduce: [false, true]
  env:
    NCCL_PROTO:
      choices: [unset, LL]
      when: {args.disable-custom-all-reduce: true}
without_gpu:
  search: {trials: 2}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_apply_without_a_gpu_only(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert load_space(path, device="cpu").space.search.trials == 2
    assert load_space(path, device="cuda").space.search.trials == 30


def test_model_from_the_command_line_wins(tmp_path: Path) -> None:
    loaded = load_space(write(tmp_path, GOOD), device="cuda", model="/models/x")
    assert loaded.space.model == "/models/x"


BROKEN = [
    ("", "empty"),
    ("- a\n- b\n", "a list"),
    ("name: [unclosed\n", "line"),
    (GOOD.replace("name: demo", "name: Demo Sweep"), "line 1, name"),
    (GOOD.replace("model: embedded\n", ""), 'the field "model" is missing'),
    (GOOD.replace("model:", "modle:"), 'did you mean "model"?'),
    (GOOD.replace("[unset, LL]", "[]"), "choices is empty"),
    (GOOD.replace("[unset, LL]", "[LL, LL]"), "there twice"),
    (GOOD.replace("[unset, LL]", "[true, LL]"), "environment variables are text"),
    (GOOD.replace("[unset, LL]", "[unset, ]\n      int: {low: 1, high: 2}"), "exactly one of"),
    (
        GOOD.replace("args.disable-custom-all-reduce", "args.disable-custom-allreduce"),
        'did you mean "args.disable-custom-all-reduce"?',
    ),
    (
        GOOD.replace("when: {args.disable-custom-all-reduce: true}", "when: {device: tpu}"),
        "no device",
    ),
    (GOOD.replace("trials: 2", "trials: many"), "line 11, without_gpu.search.trials"),
    (GOOD + "baseline: {args: {disable-custom-all-reduc: true}}\n", "not a parameter"),
    (GOOD + "workload: {concurrency: [4, 8]}\n", "the first level must be 1"),
    (GOOD + "search: {sampler: tpee}\n", 'did you mean "tpe"?'),
    (GOOD + "constraints: [{metric: ttft_p95_ms@7, at_most: 5}]\n", "one of the workload's levels"),
    (GOOD + "engine: {args: {port: 30000}}\n", "set by the sweeper itself"),
    (GOOD + "engine: {args: {--tp: 2}}\n", "without the leading dashes"),
    (GOOD + "engine: {start: {give_up_after: soon}}\n", "expected a duration"),
    (GOOD.replace("[false, true]", "{int: {low: 9, high: 1}}"), "is above high"),
    (GOOD.replace("all-reduce: true}", "all-reduce: 7}"), "can never be 7"),
    (GOOD + "engine: {env: {NCCL_PROTO: LL}}\n", "cannot be both fixed and searched"),
    (GOOD.replace("[false, true]", "{float: {low: 0, high: 1, log: true}}"), "low above zero"),
    (
        GOOD.replace("[false, true]", "{int: {low: 2, high: 8, step: 2, log: true}}"),
        "log and step cannot be used together",
    ),
    (GOOD.replace("  env:", "  forbid: [{combination: {}}]\n  env:"), "would forbid everything"),
    (GOOD.replace("[unset, LL]", '["a\\nb", LL]'), "control character"),
    (GOOD.replace("all-reduce: true}", "all-reduce: []}"), "could never hold"),
    (GOOD + "engine: {args: " + "{a: " * 60 + "1" + "}" * 60 + "}\n", "nested too deeply"),
    (
        GOOD
        + "description: &a [x,x,x,x,x,x,x,x,x]\n"
        + "engine: {args: {b: &b ["
        + ", ".join(["*a"] * 9)
        + "], c: &c ["
        + ", ".join(["*b"] * 9)
        + "], d: &d ["
        + ", ".join(["*c"] * 9)
        + "], e: &e ["
        + ", ".join(["*d"] * 9)
        + "], f: ["
        + ", ".join(["*e"] * 9)
        + "]}}\n",
        "too many values",
    ),
    (GOOD + "search: {time_budget: 0}\n", "expected a duration"),
    (GOOD + "search: {first: [{args: {disable-custom-al: true}}]}\n", "search.first.0.args"),
    (GOOD + "objectives: [{metric: ttft_p95_ms@1}]\n", "would be made longer"),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
def test_broken_file(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_space(write(tmp_path, text), device="cuda")
    shown = str(caught.value)
    assert expected in shown
    assert "space.yaml" in shown
    assert len(shown.splitlines()) <= 24
    assert "pydantic" not in shown.lower()


def test_several_problems_are_shown_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("model:", "modle:").replace("[unset, LL]", "[]")
    with pytest.raises(InputError, match="3 problems"):
        load_space(write(tmp_path, text), device="cuda")


def test_a_circle_of_conditions_is_named(tmp_path: Path) -> None:
    text = (
        "name: a\nmodel: embedded\nspace:\n  args:\n"
        "    a: {choices: [1], when: {args.b: 1}}\n    b: {choices: [1], when: {args.a: 1}}\n"
    )
    with pytest.raises(InputError, match=r"circle: args\.a -> args\.b -> args\.a"):
        load_space(write(tmp_path, text), device="cuda")


@pytest.mark.parametrize("path", sorted(Path("search_spaces").glob("*.yaml")), ids=str)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_shipped_spaces_are_right(path: Path, device: str) -> None:
    assert load_space(path, device=device).space.name == path.stem


def test_missing_file_and_directory(tmp_path: Path) -> None:
    for path, words in [(tmp_path / "none.yaml", "no such file"), (tmp_path, "directory")]:
        with pytest.raises(InputError, match=words):
            load_space(path, device="cuda")


def test_not_text_and_not_a_page_of_text(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    for content, words in [(b"name: \xff\n", "not UTF-8"), (b"#" * 1_000_001, "larger than")]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            load_space(path, device="cuda")


@pytest.mark.parametrize(
    ("value", "possible"),
    [(4, True), (6, True), (5, False), (10, False), (True, False), ("4", False)],
)
def test_values_of_a_range_with_steps(value: object, possible: bool) -> None:
    assert (
        can_take(Parameter.model_validate({"int": {"low": 4, "high": 8, "step": 2}}), value)
        == possible
    )
