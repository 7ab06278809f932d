"""The plain values of a search-space file, and how they become text.

A value is a boolean, a number or a string. The word ``unset`` stands for
"leave the switch alone", which is not the same as any value of it: SGLang and
NCCL have defaults of their own.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

UNSET = "unset"

_KINDS = {"dict": "a mapping", "list": "a list"}

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def check_scalar(value: Any) -> bool | int | float | str:
    """Return ``value`` if it is a boolean, a number or a string.

    Raises:
        ValueError: for anything else, in words for the reader of a YAML file.
    """
    if isinstance(value, str) and any(unicodedata.category(c) == "Cc" for c in value):
        raise ValueError("text with a line break or another control character")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("infinity and not-a-number are no values of a switch")
    if isinstance(value, bool | int | float | str):
        return value
    if value is None:
        raise ValueError(f'empty value; write "{UNSET}" to leave the switch alone')
    kind = _KINDS.get(type(value).__name__, type(value).__name__)
    raise ValueError(f"expected one value (text, number, true or false), found {kind}")


def parse_duration(value: Any) -> float:
    """Turn ``90``, ``"90s"``, ``"15m"`` or ``"12h"`` into seconds.

    Raises:
        ValueError: for anything else, and for zero and negative durations.
    """
    seconds: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if seconds is None or not 0 < seconds < float("inf"):
        raise ValueError('expected a duration above zero, such as 90, "90s", "15m" or "12h"')
    return seconds


def as_text(value: bool | int | float | str) -> str:
    """The value as it stands in an environment variable or after a flag."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


Scalar = Annotated[
    Any,
    BeforeValidator(check_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[smh]?$"},
            ]
        }
    ),
]
