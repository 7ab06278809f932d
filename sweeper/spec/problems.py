"""What is wrong with a file, in words: line, field, fault, what is allowed."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from sweeper.errors import InputError
from sweeper.spec.yaml_lines import Location, YamlDocument

# One screen. The rest would scroll away, and later faults often follow from earlier ones.
SHOWN = 8


@dataclass(frozen=True)
class Problem:
    """One fault of a file.

    Args:
        location: where in the file, from the top: ``("space", "env", "NCCL_PROTO")``.
        what: what is wrong, without a full stop.
        advice: what is allowed or what to write instead.
    """

    location: Location
    what: str
    advice: str = ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean "x"?`` where a known name is close, else nothing."""
    by_shape = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower().replace("_", "-"), by_shape, n=1, cutoff=0.6)
    return f'did you mean "{by_shape[close[0]]}"?' if close else ""


def raise_for(problems: Sequence[Problem], document: YamlDocument) -> None:
    """Raise one error that shows all problems, if there are any.

    Raises:
        InputError: the problems in the order of their lines.
    """
    if not problems:
        return
    ordered = sorted(problems, key=lambda problem: document.line(problem.location))
    blocks = []
    for problem in ordered[:SHOWN]:
        field = ".".join(str(part) for part in problem.location) or "the file"
        block = f"  line {document.line(problem.location)}, {field}:\n    {problem.what}"
        blocks.append(f"{block}\n    {problem.advice}" if problem.advice else block)
    if len(ordered) > SHOWN:
        blocks.append(f"  ... and {len(ordered) - SHOWN} more")
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    raise InputError(
        f"{count}; nothing was started\n" + "\n".join(blocks), where=str(document.path)
    )


def from_pydantic(error: ErrorDetails, schema: type[BaseModel]) -> Problem:
    """Turn one of pydantic's errors into words for the reader of the file."""
    location: Location = tuple(part for part in error["loc"] if part != "[key]")
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    name = str(location[-1]) if location else ""
    if kind == "extra_forbidden":
        fields = fields_at(schema, location[:-1])
        return Problem(
            location,
            f'unknown field "{name}"' + _comma(suggestion(name, fields)),
            "allowed here: " + ", ".join(fields),
        )
    if kind == "missing":
        return Problem(location, f'the field "{name}" is missing', _description(schema, location))
    if kind == "literal_error":
        allowed = str(context["expected"])
        options = [option.strip("' ") for option in allowed.replace(" or ", ", ").split(",")]
        return Problem(
            location,
            f"{given!r} is not one of the values" + _comma(suggestion(str(given), options)),
            f"allowed: {', '.join(options)}",
        )
    if kind == "value_error":
        return Problem(location, str(context["error"]))
    if kind == "string_pattern_mismatch":
        return Problem(location, f"{given!r} is not allowed here", _description(schema, location))
    message = re.sub(
        r" or instance of \w+",
        "",
        error["msg"].replace("Input should be", "should be").replace("valid dictionary", "mapping"),
    )
    return Problem(
        location,
        f"{message[0].lower()}{message[1:]}, found {_short(given)}",
        _description(schema, location),
    )


def fields_at(schema: type[BaseModel], location: Location) -> list[str]:
    """The names of the fields that are allowed at ``location``."""
    model = _model_at(schema, location)
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _comma(text: str) -> str:
    return f"; {text}" if text else ""


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _description(schema: type[BaseModel], location: Location) -> str:
    parent = _model_at(schema, location[:-1])
    if parent is None or not location:
        return ""
    for name, field in parent.model_fields.items():
        if location[-1] in (name, field.alias):
            return field.description or ""
    return ""


def _model_at(schema: type[BaseModel], location: Location) -> type[BaseModel] | None:
    current: Any = schema
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            found = [f.annotation for n, f in current.model_fields.items() if part in (n, f.alias)]
            if not found:
                return None
            current = found[0]
        else:
            inner = [arg for arg in typing.get_args(current) if arg is not type(None)]
            if not inner:
                return None
            current = inner[-1]
        if typing.get_origin(current) in (typing.Union, types.UnionType):
            current = next((a for a in typing.get_args(current) if a is not type(None)), None)
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None
