"""What the word in the file may be, and what comes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import sweeper.models
from sweeper.errors import InputError
from sweeper.models import EMBEDDED, EmbeddedModel, ResolvedModel, resolve
from sweeper.models.resolver import check_name

PYTHON = Path(sys.executable)


def model_directory(folder: Path, config: object) -> Path:
    folder.mkdir(exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("config", "heads", "kv_heads", "hidden"),
    [
        ({"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}, 8, 2, 64),
        ({"num_attention_heads": 8, "hidden_size": 64}, 8, 8, 64),
        ({"num_attention_heads": 8, "num_key_value_heads": None}, 8, 8, None),
        ({}, None, None, None),
        ({"text_config": {"num_attention_heads": 4, "hidden_size": 32}}, 4, 4, 32),
        ({"text_config": {"num_attention_heads": 4}, "num_attention_heads": 2}, 2, 2, None),
        ({"text_config": "other"}, None, None, None),
        ({"num_attention_heads": [4, 8], "hidden_size": True}, None, None, None),
    ],
)
def test_directory(
    config: dict[str, Any],
    heads: int | None,
    kv_heads: int | None,
    hidden: int | None,
    tmp_path: Path,
) -> None:
    directory = model_directory(tmp_path / "model", config)
    assert resolve(str(directory), python=PYTHON) == ResolvedModel(
        name=str(directory),
        path=str(directory),
        description=f"model directory {directory}",
        attention_heads=heads,
        kv_heads=kv_heads,
        hidden_size=hidden,
        real_weights=True,
    )


@pytest.mark.parametrize("word", ["./model", "model", "../here/model", "~/here/model"])
def test_path_of_a_directory_becomes_absolute(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    model_directory(here / "model", {})
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = resolve(word, python=PYTHON)
    assert found.name == word
    assert Path(found.path).is_absolute()
    assert Path(found.path).samefile(here / "model")


@pytest.mark.parametrize(
    "word", ["/none/model", "./none", "../none/model", "~/none", "~nobody-at-all/none"]
)
def test_path_that_leads_nowhere(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no such model directory") as caught:
        resolve(word, python=PYTHON)
    assert "embedded-tiny" in str(caught.value)


@pytest.mark.parametrize("word", ["", " "])
def test_no_model(word: str) -> None:
    with pytest.raises(InputError, match="no model is named") as caught:
        resolve(word, python=PYTHON)
    assert "embedded-tiny" in str(caught.value)


def test_file_is_not_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("")
    with pytest.raises(InputError, match="a directory is needed"):
        resolve(str(path), python=PYTHON)


def test_directory_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        resolve(str(tmp_path), python=PYTHON)


@pytest.mark.parametrize("text", ["{", "[]", "3", '"text"'])
def test_configuration_that_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="configuration") as caught:
        resolve(str(model_directory(tmp_path / "model", text)), python=PYTHON)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("word", ["meta-llama/Llama-3.1-8B-Instruct", "gpt2"])
def test_anything_else_is_a_hub_id(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(word, python=PYTHON) == ResolvedModel(
        word, word, f"model {word} of the hub", None, None, None, True
    )


@pytest.mark.parametrize("word", ["embedded", "embedded-tiny"])
def test_embedded_model_is_made_by_the_engines_interpreter(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory(tmp_path / "model", {"num_attention_heads": 8})
    asked: list[Path] = []

    def ensure(python: Path) -> Path:
        asked.append(python)
        return directory

    stub = EmbeddedModel("a stub", EMBEDDED[word].real_weights, ensure)
    monkeypatch.setitem(EMBEDDED, word, stub)  # type: ignore[arg-type]
    found = resolve(word, python=Path("/engine/python"))
    assert asked == [Path("/engine/python")]
    assert (found.name, found.path, found.description) == (word, str(directory), "a stub")
    assert found.real_weights == (word == "embedded")


def test_public_names() -> None:
    assert sorted(sweeper.models.__all__) == [
        "EMBEDDED",
        "EmbeddedModel",
        "ResolvedModel",
        "resolve",
    ]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("word", "heads", "kv_heads", "hidden", "real"),
    [("embedded", 9, 3, 576, True), ("embedded-tiny", 8, 4, 256, False)],
)
def test_real_embedded_models(
    word: str, heads: int, kv_heads: int, hidden: int, real: bool
) -> None:
    found = resolve(word, python=PYTHON)
    assert (found.attention_heads, found.kv_heads, found.hidden_size) == (heads, kv_heads, hidden)
    assert found.real_weights is real
    assert found.description == EMBEDDED[word].description


@pytest.mark.parametrize(
    ("model", "word"),
    [("embeded-tiny", 'did you mean "embedded-tiny"'), ("/nope", "no such model")],
)
def test_a_name_is_checked_without_making_anything(model: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        check_name(model)
    assert word in str(caught.value)


def test_an_id_of_a_hub_is_taken_as_it_is() -> None:
    check_name("org/model")
    check_name("embedded")
