"""From the word in the file to something that SGLang can load."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.errors import InputError
from sweeper.models import smollm2, tiny


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that Sweeper brings along.

    Args:
        description: plain words for people.
        real_weights: whether what it writes makes sense.
        ensure: makes the directory if needed; takes the engine's interpreter.
    """

    description: str
    real_weights: bool
    ensure: Callable[[Path], Path]


EMBEDDED: Mapping[str, EmbeddedModel] = {
    "embedded": EmbeddedModel(smollm2.DESCRIPTION, True, smollm2.ensure),
    "embedded-tiny": EmbeddedModel(tiny.DESCRIPTION, False, tiny.ensure),
}


@dataclass(frozen=True)
class ResolvedModel:
    """A model that can be given to the engine.

    Args:
        name: what the file said.
        path: a directory, or the model's id on a hub.
        description: plain words for people.
        attention_heads: None where it is unknown, as for a hub id.
        kv_heads: the same.
        hidden_size: the same.
        real_weights: False for random weights: speed only, no sensible text.
    """

    name: str
    path: str
    description: str
    attention_heads: int | None
    kv_heads: int | None
    hidden_size: int | None
    real_weights: bool


def resolve(model: str, *, python: Path) -> ResolvedModel:
    """Return what ``model`` stands for; an embedded model is made if needed.

    Args:
        model: ``embedded``, ``embedded-tiny``, a directory, or a hub id.
        python: the engine's interpreter.

    Raises:
        InputError: a path that does not lead to a model directory.
        MachineError: an embedded model cannot be made here.
    """
    if embedded := EMBEDDED.get(model):
        directory = embedded.ensure(python)
        return _describe(model, directory, embedded.description, embedded.real_weights)
    check_name(model)
    directory = _as_path(model)
    if directory.is_dir():
        directory = directory.absolute()
        return _describe(model, directory, f"model directory {directory}", real_weights=True)
    return ResolvedModel(model, model, f"model {model} of the hub", None, None, None, True)


def check_name(model: str) -> None:
    """Whether the word can stand for a model; nothing is made or fetched.

    Raises:
        InputError: a path that leads nowhere, or a misspelled name.
    """
    directory = _as_path(model)
    if model in EMBEDDED or directory.is_dir():
        return
    if directory.exists():
        raise InputError(
            "the model is a file, but a directory is needed",
            where=model,
            advice="Give the directory that holds config.json and the weights.",
        )
    if model.startswith(("/", "./", "../", "~")):
        raise InputError("there is no such model directory", where=model, advice=_choices())
    if close := difflib.get_close_matches(model.lower(), EMBEDDED, n=1, cutoff=0.75):
        raise InputError(
            f'no built-in model has this name; did you mean "{close[0]}"?',
            where=f"model {model}",
            advice=_choices(),
        )


def _as_path(model: str) -> Path:
    # Path("") would be the current directory.
    if not model.strip():
        raise InputError("no model is named", where="model", advice=_choices())
    try:
        return Path(model).expanduser()
    except RuntimeError:  # "~name" where nobody has that name
        return Path(model)


def _choices() -> str:
    known = ", ".join(EMBEDDED)
    return f"Give an existing directory, the id of a model on a hub, or one of: {known}."


def _describe(name: str, directory: Path, description: str, real_weights: bool) -> ResolvedModel:
    config = _language_part(_read_config(directory))
    heads = _count(config, "num_attention_heads")
    # Configurations from before grouped-query attention have no number of their own.
    kv_heads = _count(config, "num_key_value_heads") or heads
    hidden_size = _count(config, "hidden_size")
    return ResolvedModel(
        name, str(directory), description, heads, kv_heads, hidden_size, real_weights
    )


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            "the model directory has no config.json",
            where=str(directory),
            advice="Give the directory that holds config.json and the weights.",
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"the model's configuration cannot be read: {error}",
            where=str(path),
            advice="Copy or download the model again.",
        ) from error
    if not isinstance(config, dict):
        raise InputError(
            "the model's configuration is not a JSON object",
            where=str(path),
            advice="Copy or download the model again.",
        )
    return config


def _language_part(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part about the language model; multimodal ones have several."""
    nested = config.get("text_config")
    if "num_attention_heads" not in config and isinstance(nested, dict):
        return nested
    return config


def _count(config: dict[str, Any], key: str) -> int | None:
    # Some architectures list a number per layer here, which is no single answer.
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
