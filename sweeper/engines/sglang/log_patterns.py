"""The patterns of SGLang's log, read from ``log_patterns.toml`` beside this module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


@dataclass(frozen=True)
class LogPatterns:
    """All patterns, compiled.

    Args:
        prefix: what stands in front of a message, with the groups ``time`` and ``rank``.
        counts: the end of a progress bar, with the groups ``done`` and ``total``.
        stages: names of the stages with what tells of them, in the order of a start.
        steady: stages whose progress bar moves at about one pace.
        weights_begin: a rank begins to load a model.
        capture_begin: a capture of graphs begins.
        draft_capture_begin: it is one of the draft model's.
    """

    prefix: re.Pattern[str]
    counts: re.Pattern[str]
    stages: dict[str, re.Pattern[str]]
    steady: frozenset[str]
    weights_begin: re.Pattern[str]
    capture_begin: re.Pattern[str]
    draft_capture_begin: re.Pattern[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The stages in the order of a start."""
        return tuple(self.stages)


@cache
def log_patterns() -> LogPatterns:
    """The patterns of the package, read once."""
    return parse(files(__package__).joinpath("log_patterns.toml").read_text(encoding="utf-8"))


def parse(text: str) -> LogPatterns:
    """Check and compile.

    Args:
        text: TOML, as ``log_patterns.toml`` has it.

    Raises:
        ValueError: an unknown or missing field, something that is no regular
            expression, or a stage that does not exist or is told twice.
    """
    return _compiled(_File.model_validate(tomllib.loads(text)))


def _expression(text: str) -> str:
    try:
        re.compile(text, re.ASCII)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return text


_Expression = Annotated[str, Field(min_length=1), AfterValidator(_expression)]
_Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Pattern(_Strict):
    text: _Expression
    versions: Annotated[list[_Version], Field(min_length=1)]
    seen: Annotated[str, Field(min_length=1)]


class _Bar(_Pattern):
    stage: str


class _Stage(_Strict):
    name: Annotated[str, Field(min_length=1)]
    steady: bool = False
    patterns: Annotated[list[_Pattern], Field(min_length=1)]


class _Marks(_Strict):
    weights_begin: _Expression
    capture_begin: _Expression
    draft_capture_begin: _Expression


class _File(_Strict):
    prefix: _Expression
    counts: _Expression
    stages: Annotated[list[_Stage], Field(min_length=1)]
    bars: list[_Bar]
    marks: _Marks

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(names) != len(set(names)):
            raise ValueError(f"a stage is told twice: {names}")
        if unknown := {bar.stage for bar in self.bars} - set(names):
            raise ValueError(f"progress bars of unknown stages: {sorted(unknown)}")
        for field, groups in (("prefix", {"time", "rank"}), ("counts", {"done", "total"})):
            if set(re.compile(getattr(self, field)).groupindex) != groups:
                raise ValueError(f"{field} needs the groups {sorted(groups)}")
        return self


def _compiled(file: _File) -> LogPatterns:
    stages = {
        stage.name: _any_of(
            [pattern.text for pattern in stage.patterns]
            + [bar.text for bar in file.bars if bar.stage == stage.name]
        )
        for stage in file.stages
    }
    return LogPatterns(
        prefix=_any_of([file.prefix]),
        counts=_any_of([file.counts]),
        stages=stages,
        steady=frozenset(stage.name for stage in file.stages if stage.steady),
        weights_begin=_any_of([file.marks.weights_begin]),
        capture_begin=_any_of([file.marks.capture_begin]),
        draft_capture_begin=_any_of([file.marks.draft_capture_begin]),
    )


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    # ASCII, so that a digit is one that `int` and a date can be made of.
    return re.compile("|".join(f"(?:{text})" for text in texts), re.ASCII)
