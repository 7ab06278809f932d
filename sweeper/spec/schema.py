"""The search-space file as a schema: every field, its default and its meaning.

The reference page and the JSON Schema for editors are made from this module
(:mod:`sweeper.spec.reference`), so a field is documented where it is defined.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from sweeper.spec.parameters import Forbidden, Parameter, Strict
from sweeper.spec.values import Duration, Scalar


class StartLimits(Strict):
    """How long a start may take."""

    give_up_after: Duration = Field(
        default=1800.0,
        description="A server that does not answer a real completion by then is stopped and the trial fails. "
        "A 547 GB model was seen to load for 313 s; the default is far above that on purpose.",
    )
    stall_after: Duration = Field(
        default=300.0,
        description="A start in which nothing moves for so long is hung: no line in the log, no processor time, "
        "no reads or writes, no change of GPU memory. While anything moves it lives until give_up_after.",
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="How often a trial is begun again when the machine is to blame and not the configuration, such as "
        "for a port that another program took.",
    )


class Engine(Strict):
    """The server that is tuned, and what every trial of it shares."""

    kind: Literal["sglang", "emulated"] = Field(
        default="sglang",
        description='Which engine. "emulated" takes SGLang\'s flags and makes its numbers up, for rehearsals and '
        "tests: nothing that it says holds for any machine. A bare name is short for kind.",
    )
    python: str | None = Field(
        default=None,
        description="The interpreter that has the engine installed; by default the one that runs the sweeper.",
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="Flags given to every server, without the leading dashes: a value, true for a flag without "
        'one, a list, or a mapping (passed as JSON). "tensor-parallel-size: auto" uses as many GPUs as the '
        "model's attention heads can be divided by.",
    )
    env: dict[str, Scalar] = Field(
        default_factory=dict, description="Environment variables given to every server."
    )
    start: StartLimits = Field(default_factory=StartLimits, description="Limits of a start.")


class SpaceSection(Strict):
    """What is searched."""

    env: dict[str, Parameter] = Field(
        default_factory=dict, description="Environment variables by name."
    )
    args: dict[str, Parameter] = Field(
        default_factory=dict, description="Flags of the engine, without the leading dashes."
    )
    forbid: list[Forbidden] = Field(
        default_factory=list, description="Combinations that are never tried."
    )

    @model_validator(mode="after")
    def _something_to_search(self) -> SpaceSection:
        if not self.env and not self.args:
            raise ValueError("nothing to search: give at least one parameter under env or args")
        return self


class Workload(Strict):
    """The load that every candidate is measured under (closed loop)."""

    input_tokens: int = Field(
        default=512, ge=1, le=1_000_000, description="Prompt length, in tokens."
    )
    output_tokens: int = Field(
        default=256,
        ge=2,
        le=1_000_000,
        description="Answer length, in tokens; the end-of-text token is ignored.",
    )
    concurrency: list[int] = Field(
        default=[1, 8, 32, 128],
        description="Requests in flight at each load level, rising; the first must be 1, the single stream.",
    )
    requests_per_stream: int = Field(
        default=4,
        ge=1,
        le=10_000,
        description="Requests that each of the concurrent streams sends in a level.",
    )
    request_timeout: Duration = Field(
        default=600.0, description="A request that takes longer has failed."
    )
    level_timeout: Duration = Field(
        default=1800.0,
        description="A load level that takes longer has failed, and the trial with it.",
    )

    stall_after: Duration = Field(
        default=300.0,
        description="When no token comes back for so long, of all requests in flight, the server is hung.",
    )

    @field_validator("concurrency")
    @classmethod
    def _rising_from_one(cls, value: list[int]) -> list[int]:
        if not value or value[0] != 1:
            raise ValueError(
                "the first level must be 1: it is the single stream that every trial is judged by"
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(value)):
            raise ValueError("levels must rise, each above the one before")
        if value[-1] > 100_000:
            raise ValueError("a level above 100,000 requests in flight is beyond one client")
        return value


class Objective(Strict):
    """A measured number that should become better."""

    metric: str = Field(
        description='"single_stream" and "peak" (output tokens per second at concurrency 1, and the highest of '
        'all levels), or a metric of one level such as "ttft_p95_ms@32".'
    )
    goal: Literal["maximize", "minimize"] = Field(
        default="maximize", description="Which way is better."
    )
    weight: float = Field(
        default=1.0, gt=0, description="Weight in the score, a geometric mean of all objectives."
    )


class Constraint(Strict):
    """A limit that a winner must keep. A candidate that breaks it is measured, but cannot win."""

    metric: str = Field(description='A metric as in objectives, such as "ttft_p95_ms@32".')
    at_most: float | None = Field(default=None, description="Largest value allowed.")
    at_least: float | None = Field(default=None, description="Smallest value allowed.")

    @model_validator(mode="after")
    def _one_limit(self) -> Constraint:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("give exactly one of at_most and at_least")
        return self


def _by_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Gpus(Strict):
    """The GPUs of the machine."""

    when_busy: Literal["refuse", "wait"] = Field(
        default="refuse",
        description="What to do when somebody else's process is on them: stop with its name, or wait for it to end.",
    )
    wait_for: Duration = Field(
        default=600.0, description="How long to wait for them, before the sweep and before a trial."
    )


class Sampler(Strict):
    """How Optuna proposes candidates. A bare name is short for ``name``."""

    name: Literal["tpe", "gp", "random", "qmc", "nsga2", "brute_force"] = Field(
        default="tpe", description="Which of Optuna's samplers."
    )
    args: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of that sampler, as Optuna names them."
    )


class Pruner(Strict):
    """How Optuna drops a poor candidate early. A bare name is short for ``name``."""

    name: Literal[
        "median", "percentile", "successive_halving", "hyperband", "threshold", "none"
    ] = Field(default="median", description="Which of Optuna's pruners.")
    args: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of that pruner, as Optuna names them."
    )


class Named(Strict):
    """A candidate written down by hand.

    A parameter of the space that is not named here is left alone: ``unset``, or
    ``false`` for a flag without a value.
    """

    env: dict[str, Scalar] = Field(
        default_factory=dict, description="Values for parameters of space.env."
    )
    args: dict[str, Scalar] = Field(
        default_factory=dict, description="Values for parameters of space.args."
    )


class Search(Strict):
    """How many candidates, in which time, chosen how."""

    trials: int = Field(default=30, ge=1, le=100_000, description="Candidates beside the baseline.")
    time_budget: Duration | None = Field(
        default=None, description="No trial is started after this time."
    )
    sampler: Sampler = Field(default_factory=Sampler, description="How candidates are proposed.")
    pruner: Pruner = Field(default_factory=Pruner, description="How poor candidates are dropped.")
    first: list[Named] = Field(
        default_factory=list,
        description="Candidates to try before the sampler proposes its own, such as a set of values that somebody "
        "recommends. They count as trials.",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**31, description="Seed of the sampler, the prompts and the servers."
    )
    parallel: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Servers side by side. More than one needs as many times the GPUs, and neighbours disturb "
        "each other's numbers.",
    )

    @field_validator("sampler", "pruner", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return _by_name(value)


class Baseline(Named):
    """The configuration that every candidate is compared with: trial 0."""


class SpaceFile(Strict):
    """A search-space file."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="Name of the sweep; results are put under it. Lower-case letters, digits, dot, dash, underscore.",
    )
    description: str = Field(default="", description="What this sweep is meant to find out.")
    model: str = Field(
        min_length=1,
        description="A directory, a hub name, or one of the built-in models: "
        '"embedded" (SmolLM2-135M, real weights) and "embedded-tiny" (random weights, for tests).',
    )
    engine: Engine = Field(default_factory=Engine, description="The server that is tuned.")
    gpus: Gpus = Field(default_factory=Gpus, description="The GPUs of the machine.")
    space: SpaceSection = Field(description="What is searched.")
    workload: Workload = Field(
        default_factory=Workload, description="The load that candidates are measured under."
    )
    objectives: list[Objective] = Field(
        default_factory=lambda: [Objective(metric="single_stream"), Objective(metric="peak")],
        min_length=1,
        description="What should become better. By default single-stream speed and peak throughput, equally.",
    )
    constraints: list[Constraint] = Field(
        default_factory=list, description="Limits that a winner must keep."
    )
    search: Search = Field(default_factory=Search, description="How the space is searched.")
    baseline: Baseline = Field(
        default_factory=Baseline, description="The configuration to compare with."
    )
    without_gpu: dict[Literal["model", "engine", "workload", "search"], Any] = Field(
        default_factory=dict,
        description="Fields that replace the ones above on a machine without a GPU, so that one file runs on the "
        "node and, as a rehearsal, on a laptop. Sections are merged field by field.",
    )

    @field_validator("engine", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value
