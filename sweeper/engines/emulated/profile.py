"""What a model on a machine is pretended to do: a landscape, read from YAML.

A profile has numbers for the plain server and a list of rules. Each rule has a
condition on flags and variables, and says what a configuration that meets it
changes: numbers, what the server really uses instead of what it was asked for,
or how it fails. Rules act in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DEFAULT = "kimi-k2.5-8gpu"

Scalar = bool | int | float | str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Numbers(_Strict):
    """How long a step takes, and what fits. Times are milliseconds.

    Args:
        step_ms: one decode step, whatever is in it.
        per_sequence_ms: added for each request that decodes.
        per_sequence_squared_ms: added times the square of their number; it makes the knee.
        per_context_token_ms: added for each token of their contexts.
        prefill_ms: one prefill step, whatever is in it.
        per_prefill_token_ms: added for each token that it reads.
        floor_ms: a decode step takes at least this (without CUDA graphs, the time to launch kernels).
        kv_tokens: tokens that the KV cache holds.
        context_length: of the model, in tokens.
        max_running_requests: what the engine takes when it is not told.
        chunked_prefill_size: most tokens of a prefill step, when it is not told.
        mem_fraction_static: the share of GPU memory that the engine takes when it is not told.
        weights_fraction: the share of GPU memory that weights take; ``kv_tokens`` grows
            with what the engine gets above it.
    """

    step_ms: float = Field(gt=0)
    per_sequence_ms: float = Field(ge=0)
    per_sequence_squared_ms: float = Field(default=0.0, ge=0)
    per_context_token_ms: float = Field(default=0.0, ge=0)
    prefill_ms: float = Field(default=0.0, ge=0)
    per_prefill_token_ms: float = Field(ge=0)
    floor_ms: float = Field(default=0.0, ge=0)
    kv_tokens: int = Field(gt=0)
    context_length: int = Field(default=32768, gt=1)
    max_running_requests: int = Field(default=2048, gt=0)
    chunked_prefill_size: int = Field(default=8192, gt=0)
    mem_fraction_static: float = Field(default=0.88, gt=0, le=1)
    weights_fraction: float = Field(default=0.0, ge=0, lt=1)


class Speculation(_Strict):
    """What a drafter guesses, and what guessing costs.

    Args:
        acceptance: chance that one guessed token is right, given that those before it were.
        draft_step_ms: added to a step for each token of depth that is guessed.
        token_ms: added to ``per_sequence_ms`` for each token that is checked.
        token_squared_ms: added to ``per_sequence_squared_ms`` for each token that is checked.
    """

    acceptance: float = Field(ge=0, le=1)
    draft_step_ms: float = Field(default=0.0, ge=0)
    token_ms: float = Field(default=0.0, ge=0)
    token_squared_ms: float = Field(default=0.0, ge=0)


class Bounds(_Strict):
    """A condition on a number: greater, less or both."""

    above: float | None = None
    below: float | None = None


Wanted = Scalar | list[Scalar] | Bounds


class Rule(_Strict):
    """What a configuration changes.

    Args:
        says: what the rule is, for who reads the file.
        source: a measurement that was reported, something known of the engine, or made up.
        when: by name, ``args.<flag>`` or ``env.<variable>``: a value, a list of values, or
            bounds. A text may hold the wildcards ``*`` and ``?``; "unset" is a flag that
            was not given, and one that is false.
        set: numbers that take a new value.
        times: numbers that are multiplied.
        speculation: how the drafter does; acts only where there is speculation.
        settings: what ``/server_info`` shows, whatever was asked for.
        fault: how a server with this configuration fails.
    """

    says: str
    source: Literal["report", "engine", "assumed"]
    when: dict[str, Wanted]
    set: dict[str, float] = {}
    times: dict[str, float] = {}
    speculation: Speculation | None = None
    settings: dict[str, Scalar | None] = {}
    fault: str = ""

    @model_validator(mode="after")
    def _known_names(self) -> Rule:
        for name in (*self.set, *self.times):
            if name not in Numbers.model_fields:
                raise ValueError(f"no such number: {name}")
        for name in self.when:
            if not name.startswith(("args.", "env.")):
                raise ValueError(f"a condition is on args.NAME or env.NAME, found {name}")
        return self

    def meets(self, args: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        """Whether a configuration meets all conditions.

        Args:
            args: flags by their name in the parser (``tp_size``).
            env: variables.
        """
        return all(_meets(value, _given(name, args, env)) for name, value in self.when.items())


class Profile(_Strict):
    """A landscape.

    Args:
        name: what it is called.
        description: of the machine and the model.
        noise: relative spread of speed between servers, and of steps of one server.
        start: seconds of each stage of a start, for whoever plays one.
        server: the plain server.
        speculation: of a drafter that no rule knows.
        settings: what ``/server_info`` shows unless a flag or a rule says otherwise.
        rules: in the order in which they act.
    """

    name: str
    description: str
    noise: float = Field(ge=0, lt=0.5)
    start: dict[str, float] = {}
    server: Numbers
    speculation: Speculation
    settings: dict[str, Scalar | None] = {}
    rules: list[Rule] = []


def load_profile(name: str) -> Profile:
    """A packaged profile by its name, or one from the path of a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read, or is no profile.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    packaged = Path(__file__).parent / "profiles" / f"{name or DEFAULT}.yaml"
    path = packaged if packaged.is_file() else Path(name)
    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    return Profile.model_validate(content)


def flag_name(name: str) -> str:
    """The name in the parser of a flag, as a search space writes it (``tp-size``)."""
    dest = name.removeprefix("--").replace("-", "_")
    return _DESTS.get(dest, dest)


# Flags whose name in the parser is not their own; the rest follow by replacing dashes.
_DESTS = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "speculative_draft_model": "speculative_draft_model_path",
}


def _given(name: str, args: Mapping[str, Any], env: Mapping[str, str]) -> Any:
    section, _, key = name.partition(".")
    return env.get(key) if section == "env" else args.get(flag_name(key))


def _meets(wanted: Wanted, given: Any) -> bool:
    if isinstance(wanted, list):
        return any(_meets(one, given) for one in wanted)
    if isinstance(wanted, Bounds):
        try:
            number = float(given)
        except (TypeError, ValueError):
            return False
        return (wanted.above is None or number > wanted.above) and (
            wanted.below is None or number < wanted.below
        )
    if wanted == "unset" or wanted is False:
        return given is None or given is False
    if isinstance(wanted, bool):
        return given is True
    if isinstance(wanted, str):
        return given is not None and fnmatchcase(str(given), wanted)
    # A variable is text where the profile has a number.
    return str(given) == str(wanted)
