"""The classes of failure and their signs, read from ``failures.toml`` beside this module.

Which class a dead server belongs to is decided in :mod:`.classify`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Blame = Literal["configuration", "machine", "unknown"]
Level = Literal["cause", "death", "error", "last", "echo"]

_FILE = "failures.toml"


def _one_sentence(text: str) -> str:
    if not text.endswith(".") or re.search(r"[.!?] [A-Z]|\n", text):
        raise ValueError(f"not one sentence: {text!r}")
    return text


_Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sign(_Strict):
    """One way to recognise a class. ``failures.toml`` says what each field means."""

    level: Level
    source: _Text
    line: re.Pattern[str] | None = None
    within: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    kernel: re.Pattern[str] | None = None
    stages: frozenset[str] = frozenset()
    exit_status: frozenset[int] = frozenset()
    seen: frozenset[str] = frozenset()
    before_the_end: bool = False

    @model_validator(mode="after")
    def _conditions(self) -> Self:
        if self.line is None and (self.within or self.unless or self.before_the_end):
            raise ValueError("within, unless and before_the_end belong to a line")
        if not (self.line or self.kernel or self.exit_status or self.seen):
            raise ValueError("a sign without a condition")
        return self


class FailureClass(_Strict):
    """What went wrong, who is to blame, and what to do.

    Args:
        kind: the name of the class in every record.
        blame: who is; a configuration that is to blame is never tried again.
        retry: how many more tries make sense.
        advice: one sentence for the user.
        source: where it was seen: a public report, a place in SGLang, a recording.
        sign: how it is recognised; none for what is only seen from outside.
    """

    kind: Annotated[str, Field(pattern="^[a-z_]+$")]
    blame: Blame
    retry: Annotated[int, Field(ge=0, le=3)]
    advice: Annotated[str, AfterValidator(_one_sentence)]
    source: _Text
    sign: tuple[Sign, ...] = ()

    @model_validator(mode="after")
    def _no_second_try(self) -> Self:
        if self.blame == "configuration" and self.retry:
            raise ValueError(f"{self.kind}: a configuration that is to blame is not tried again")
        return self


class FailureTable(_Strict):
    """The whole file.

    Args:
        words: in small letters; a line without any of them means nothing.
        harmless: lines in which words of a failure mean nothing.
        ending: from such a line on, SGLang ends its own processes.
        places: in which stage a rank is, by what it prints on entering it.
        failure: the classes, the more specific ones first.
    """

    words: tuple[_Text, ...]
    harmless: tuple[re.Pattern[str], ...]
    ending: re.Pattern[str]
    places: dict[str, re.Pattern[str]]
    failure: tuple[FailureClass, ...]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        kinds = [failure.kind for failure in self.failure]
        if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
            raise ValueError(f"told twice: {sorted(twice)}")
        return self


def parse(text: str) -> FailureTable:
    """Check a table.

    Args:
        text: TOML, as ``failures.toml`` has it.

    Raises:
        ValueError: an unknown or missing field, something that is no regular
            expression, or a class that is told twice.
    """
    return FailureTable.model_validate(tomllib.loads(text))


@cache
def failure_table() -> FailureTable:
    """The table of the package, read once."""
    return parse(files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))


def failures() -> Mapping[str, FailureClass]:
    """Every class by its kind."""
    return {failure.kind: failure for failure in failure_table().failure}
