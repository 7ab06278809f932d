"""How long a step of a server takes, and what fits into it: arithmetic, no clock.

The shape is that of a server whose decode steps are bound by memory while few
requests run and by arithmetic when many do::

    step = step_ms + per_sequence_ms * n + per_sequence_squared_ms * n² + per_context_token_ms * tokens

Throughput n / step rises, flattens, and falls above n = √(step_ms / per_sequence_squared_ms).
Before that, requests may have to wait for a place in the KV cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.engines.emulated.profile import Numbers, Profile, Speculation

SPECULATIVE_CAP = 48
"""Running requests under speculation, when the flag is not given (SGLang 0.5.5 to 0.5.23)."""

NGRAM_DRAFT_TOKENS = 12
"""What NGRAM checks in one step, when the flag is not given."""


@dataclass(frozen=True)
class Drafting:
    """Speculation as it is configured.

    Args:
        algorithm: its name.
        steps: depth of the guess, in tokens.
        topk: guesses for each next token.
        draft_tokens: tokens that one step checks.
        accept_length: tokens that one step brings on average, the sure one included.
    """

    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    accept_length: float


@dataclass(frozen=True)
class Behaviour:
    """What one configuration does on one profile.

    Args:
        numbers: all rules applied; the cost of speculation is in them.
        drafting: None without speculation.
        kv_tokens: tokens that the KV cache holds.
        max_running_requests: requests that run together at most.
        chunked_prefill_size: tokens of a prefill step at most.
        settings: what differs from what was asked for, by name in the parser.
        fault: how it fails; "" when it does not.
        notes: what SGLang's log says about what it changed.
        cuda_graphs: decode steps run as graphs.
    """

    numbers: Numbers
    drafting: Drafting | None
    kv_tokens: int
    max_running_requests: int
    chunked_prefill_size: int
    settings: Mapping[str, Any]
    fault: str
    notes: tuple[str, ...]
    cuda_graphs: bool = True

    @property
    def accept_length(self) -> float:
        return self.drafting.accept_length if self.drafting else 1.0


def behaviour_of(profile: Profile, args: Mapping[str, Any], env: Mapping[str, str]) -> Behaviour:
    """Apply a profile to a configuration.

    Args:
        profile: the landscape.
        args: flags by their name in the parser; a missing one has its default.
        env: variables.
    """
    numbers = profile.server.model_dump()
    settings: dict[str, Any] = dict(profile.settings)
    speculation, fault = profile.speculation, ""
    for rule in (rule for rule in profile.rules if rule.meets(args, env)):
        numbers |= rule.set
        for name, factor in rule.times.items():
            numbers[name] *= factor
        settings |= rule.settings
        speculation = rule.speculation or speculation
        fault = fault or rule.fault
    drafting, notes = _drafting(args, speculation)
    settings |= _drafting_settings(drafting)
    if drafting:
        numbers["step_ms"] += drafting.steps * speculation.draft_step_ms
        numbers["per_sequence_ms"] += drafting.draft_tokens * speculation.token_ms
        numbers["per_sequence_squared_ms"] += drafting.draft_tokens * speculation.token_squared_ms
    numbers["kv_tokens"] = kv_tokens = _kv_tokens(numbers, args)
    asked = args.get("max_running_requests")
    if drafting and asked is None:
        asked = settings["max_running_requests"] = SPECULATIVE_CAP
        notes.append(f"Max running requests is reset to {asked} for speculative decoding.")
    # A request needs room for its prompt and its answer: SGLang takes half the cache as the limit.
    running = min(int(asked or numbers["max_running_requests"]), kv_tokens // 2)
    chunk = int(args.get("chunked_prefill_size") or numbers["chunked_prefill_size"])
    return Behaviour(
        numbers=Numbers.model_validate({**numbers, "kv_tokens": max(kv_tokens, 1)}),
        drafting=drafting,
        kv_tokens=kv_tokens,
        max_running_requests=max(1, running // int(args.get("dp_size") or 1)),
        # -1 switches chunks off: a prompt is read in one step.
        chunked_prefill_size=chunk if chunk > 0 else 16384,
        settings=settings,
        fault=fault or ("" if kv_tokens > 1 else "not_enough_memory_for_kv"),
        notes=tuple(notes),
        cuda_graphs=not (args.get("disable_cuda_graph") or args.get("disable_decode_cuda_graph")),
    )


def fault_of(profile: Profile, args: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """How a server with this configuration fails; "" when it does not."""
    return behaviour_of(profile, args, env).fault


def decode_seconds(numbers: Numbers, requests: int, context_tokens: int) -> float:
    """One decode step.

    Args:
        numbers: of the configuration.
        requests: that run.
        context_tokens: of all of them together.
    """
    milliseconds = (
        numbers.step_ms
        + numbers.per_sequence_ms * requests
        + numbers.per_sequence_squared_ms * requests * requests
        + numbers.per_context_token_ms * context_tokens
    )
    return max(milliseconds, numbers.floor_ms) / 1000


def prefill_seconds(numbers: Numbers, tokens: int) -> float:
    """One prefill step that reads ``tokens``."""
    return max(numbers.prefill_ms + numbers.per_prefill_token_ms * tokens, numbers.floor_ms) / 1000


def accept_length(acceptance: float, steps: int, topk: int) -> float:
    """Tokens that one step brings on average: one is sure, and guesses count until the first wrong one.

    Of several guesses for a token each next one is taken to have a third of the
    chance that is left, since a drafter knows its best guess.
    """
    right = 1 - (1 - acceptance) * (1 - acceptance / 3) ** (topk - 1)
    return sum(right**depth for depth in range(steps + 1))


def _drafting(
    args: Mapping[str, Any], speculation: Speculation
) -> tuple[Drafting | None, list[str]]:
    algorithm = args.get("speculative_algorithm")
    if not algorithm:
        return None, []
    notes = []
    if algorithm == "NGRAM":
        # SGLang puts the breadth of the n-gram tree in the place of the user's topk.
        topk = int(args.get("speculative_ngram_max_bfs_breadth") or 10)
        tokens = int(args.get("speculative_num_draft_tokens") or NGRAM_DRAFT_TOKENS)
        steps = max(1, tokens // topk)
    else:
        steps = int(args.get("speculative_num_steps") or 3)
        topk = int(args.get("speculative_eagle_topk") or 1)
        tokens = int(args.get("speculative_num_draft_tokens") or steps + 1)
        if topk == 1 and tokens != steps + 1:
            tokens = steps + 1
            notes.append(
                "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 "
                "when speculative_eagle_topk == 1"
            )
    length = min(accept_length(speculation.acceptance, steps, topk), float(tokens))
    return Drafting(str(algorithm), steps, topk, tokens, length), notes


def _drafting_settings(drafting: Drafting | None) -> dict[str, Any]:
    if drafting is None:
        return {}
    return {
        # NEXTN is EAGLE under another name, and reads back as such.
        "speculative_algorithm": "EAGLE" if drafting.algorithm == "NEXTN" else drafting.algorithm,
        "speculative_num_steps": drafting.steps,
        "speculative_eagle_topk": drafting.topk,
        "speculative_num_draft_tokens": drafting.draft_tokens,
    }


def _kv_tokens(numbers: Mapping[str, Any], args: Mapping[str, Any]) -> int:
    """What fits into the share of GPU memory that the engine may take, less the weights."""
    weights, usual = numbers["weights_fraction"], numbers["mem_fraction_static"]
    share = float(args.get("mem_fraction_static") or usual)
    tokens = int(numbers["kv_tokens"] * (share - weights) / (usual - weights))
    limit = args.get("max_total_tokens")
    return max(0, min(tokens, int(limit)) if limit else tokens)
