"""The reference page and the editor's schema say what the schema says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from sweeper.spec import reference
from sweeper.spec.load import load_space
from sweeper.spec.rules import LEVEL_METRICS, TRIAL_METRICS
from sweeper.spec.schema import SpaceFile

SPACES = sorted((reference.ROOT / "search_spaces").glob("*.yaml"))
HEAD = "name: demo\nmodel: embedded\n"
SPACE = "space: {args: {a: [1, 2]}}\n"


@pytest.fixture(scope="module")
def editor() -> Draft202012Validator:
    schema = reference.json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize(
    ("path", "text"),
    [(reference.PAGE, reference.page), (reference.SCHEMA, reference.schema_text)],
    ids=["page", "schema"],
)
def test_the_committed_file_is_what_the_schema_gives(path: Path, text: Any) -> None:
    found = (reference.ROOT / path).read_text(encoding="utf-8")
    assert found == text(), "run: python -m sweeper.spec.reference"


def test_both_files_are_written(tmp_path: Path) -> None:
    reference.main(tmp_path)
    for path in (reference.PAGE, reference.SCHEMA):
        assert (tmp_path / path).read_text(encoding="utf-8")


def test_every_field_is_on_the_page() -> None:
    page = reference.page()
    for model in reference._sections(SpaceFile):
        for name, field, _ in reference._fields(model):
            assert f"| `{name}` |" in page
            assert (field.description or "").replace("|", "\\|") in page


def test_every_metric_is_on_the_page() -> None:
    assert set(reference.METRICS) == {
        *TRIAL_METRICS,
        *(name.split("_")[0] if name.endswith("_ms") else name for name in LEVEL_METRICS),
    }


@pytest.mark.parametrize("example", reference.EXAMPLES.values(), ids=list(reference.EXAMPLES))
def test_the_examples_are_right(tmp_path: Path, editor: Draft202012Validator, example: str) -> None:
    text = HEAD + ("" if example.startswith("space:") else SPACE) + example
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    load_space(tmp_path / "space.yaml", device="cuda")
    assert list(editor.iter_errors(read(text))) == []


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_an_editor_accepts_the_shipped_files(path: Path, editor: Draft202012Validator) -> None:
    assert list(editor.iter_errors(read(path.read_text(encoding="utf-8")))) == []


RIGHT = [
    SPACE,
    SPACE + "search: {sampler: gp, pruner: none, time_budget: 90}\n",
    SPACE + "search: {sampler: {name: tpe, args: {multivariate: true}}, time_budget: 1.5h}\n",
    "space: {args: {a: {choices: [1], when: {device: [cuda, cpu]}}}}\n",
    "space: {args: {a: {float: {low: 0.1, high: 1}, note: why}}}\n",
    "space: {args: {a: [1]}, forbid: [{combination: {args.a: [1]}}]}\n",
    SPACE + "engine: {args: {a-b: [1, 2], c: {d: 1}}, env: {X: 1}}\n",
    SPACE + "constraints: [{metric: ttft_p95_ms@8, at_most: 5}]\nobjectives: [{metric: peak}]\n",
    SPACE + "without_gpu: {model: embedded-tiny, search: {sampler: random}}\n",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_short_form_is_accepted(tmp_path: Path, editor: Draft202012Validator, text: str) -> None:
    assert list(editor.iter_errors(read(HEAD + text))) == []
    (tmp_path / "space.yaml").write_text(HEAD + text, encoding="utf-8")
    load_space(tmp_path / "space.yaml", device="cuda")


WRONG = {
    "no space": "",
    "an unknown field": SPACE + "modle: x\n",
    "a bare value for a parameter": "space: {args: {a: 1}}\n",
    "an empty choice": "space: {args: {a: []}}\n",
    "a choice that is a list": "space: {args: {a: [[1]]}}\n",
    "two kinds of values": "space: {args: {a: {choices: [1], int: {low: 1, high: 2}}}}\n",
    "no kind of value": "space: {args: {a: {note: why}}}\n",
    "a range that is text": "space: {args: {a: {int: {low: few, high: 2}}}}\n",
    "a condition that is a mapping": "space: {args: {a: {choices: [1], when: {device: {a: 1}}}}}\n",
    "an unknown sampler": SPACE + "search: {sampler: tpee}\n",
    "no duration": SPACE + "search: {time_budget: soon}\n",
    "a forbidden nothing": "space: {args: {a: [1]}, forbid: [{combination: {}}]}\n",
    "two limits": SPACE + "constraints: [{metric: peak, at_most: 5, at_least: 1}]\n",
    "an unknown metric": SPACE + "objectives: [{metric: speed}]\n",
    "a space that is replaced": SPACE + "without_gpu: {space: {args: {a: [1]}}}\n",
    "an unknown field without a GPU": SPACE + "without_gpu: {search: {trails: 6}}\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=list(WRONG))
def test_an_editor_marks_what_is_wrong(editor: Draft202012Validator, text: str) -> None:
    assert list(editor.iter_errors(read(HEAD + text)))
