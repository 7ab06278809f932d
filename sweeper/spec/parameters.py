"""One parameter of the space: the values it may take, and when it exists."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sweeper.spec.values import UNSET, Scalar, check_scalar


class Strict(BaseModel):
    """A section of the file: fields that are not known are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class IntRange(Strict):
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = Field(description="Smallest value.")
    high: int = Field(description="Largest value.")
    step: int = Field(default=1, ge=1, description="Distance between values.")
    log: bool = Field(default=False, description="Sample on a logarithmic scale.")

    @model_validator(mode="after")
    def _consistent(self) -> IntRange:
        _check_range(self.low, self.high, self.log, stepped=self.step != 1)
        return self


class FloatRange(Strict):
    """Numbers from ``low`` to ``high``, both included."""

    low: float = Field(description="Smallest value.")
    high: float = Field(description="Largest value.")
    step: float | None = Field(
        default=None, gt=0, description="Distance between values; none by default."
    )
    log: bool = Field(default=False, description="Sample on a logarithmic scale.")

    @model_validator(mode="after")
    def _consistent(self) -> FloatRange:
        _check_range(self.low, self.high, self.log, stepped=self.step is not None)
        return self


def _check_range(low: float, high: float, log: bool, *, stepped: bool) -> None:
    if not (abs(low) < 2**53 and abs(high) < 2**53):
        raise ValueError("low and high must be numbers below 2^53")
    if low > high:
        raise ValueError(f"low ({low}) is above high ({high})")
    if log and low <= 0:
        raise ValueError("a logarithmic scale needs low above zero")
    if log and stepped:
        raise ValueError("log and step cannot be used together")


Condition = dict[str, list[Any]]


def _as_condition(value: Any) -> Any:
    """``{name: value}`` and ``{name: [values]}`` both become the second form."""
    if not isinstance(value, dict):
        return value
    for name, wanted in value.items():
        if wanted == []:
            raise ValueError(f"no value is given for {name}, so this could never hold")
    return {
        name: [check_scalar(item) for item in (wanted if isinstance(wanted, list) else [wanted])]
        for name, wanted in value.items()
    }


class Parameter(Strict):
    """What may be tried for one environment variable or one flag.

    A bare list in the file is short for ``choices``.
    """

    choices: list[Scalar] | None = Field(
        default=None,
        description=f'The values to try. "{UNSET}" leaves the switch alone; for a flag without '
        "a value, true gives it and false does not.",
    )
    int_range: IntRange | None = Field(
        default=None, alias="int", description="A range of whole numbers."
    )
    float_range: FloatRange | None = Field(
        default=None, alias="float", description="A range of numbers."
    )
    when: Condition = Field(
        default_factory=dict,
        description="The parameter exists only where all of these hold: names of other parameters "
        '("env.NAME" or "args.name") or "device" ("cuda" or "cpu"), each with a value or a list of values.',
    )
    note: str = Field(
        default="", description="Why this parameter is in the space; kept in the results."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"choices": value}
        if not isinstance(value, dict):
            raise ValueError("expected a list of choices, or a mapping with choices, int or float")
        return value

    @field_validator("when", mode="before")
    @classmethod
    def _condition(cls, value: Any) -> Any:
        return _as_condition(value)

    @model_validator(mode="after")
    def _one_kind(self) -> Parameter:
        given = [
            kind for kind in (self.choices, self.int_range, self.float_range) if kind is not None
        ]
        if len(given) != 1:
            raise ValueError("give exactly one of choices, int and float")
        if self.choices is not None:
            if not self.choices:
                raise ValueError("choices is empty")
            seen = [(type(c), c) for c in self.choices]
            twice = [c for i, (_, c) in enumerate(seen) if seen[i] in seen[:i]]
            if twice:
                raise ValueError(f"the choice {twice[0]!r} is there twice")
        return self


class Forbidden(Strict):
    """A combination that must not be tried."""

    combination: Condition = Field(
        description='Values that must not meet: "env.NAME" or "args.name" (or "device"), each with a value or a '
        "list of values."
    )
    because: str = Field(default="", description="The reason, for whoever reads the file later.")

    @field_validator("combination", mode="before")
    @classmethod
    def _condition(cls, value: Any) -> Any:
        return _as_condition(value)

    @model_validator(mode="after")
    def _not_empty(self) -> Forbidden:
        if not self.combination:
            raise ValueError("the combination is empty: it would forbid everything")
        return self
