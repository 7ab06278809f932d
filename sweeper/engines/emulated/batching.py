"""Continuous batching as SGLang does it, on a clock that somebody else turns.

Waiting requests are read first (prefill), as many as find a place; otherwise
all running ones get their next token (decode). A request gets a place when the
KV cache has room for its prompt, for the part of its answer that is expected,
and for that of all others. Where the expectation was too low the cache runs
full: then a request is put back and has to be read again (retraction).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from sweeper.engines.emulated.performance import Behaviour, decode_seconds, prefill_seconds

# SGLang's expectation: the share of the longest answer that is kept free. It starts
# high, sinks with every decode step, and rises again after a retraction.
_EXPECTED_FIRST = 0.7
_EXPECTED_LEAST = 0.098
_EXPECTED_STEPS = 600
_RETRACT_AHEAD = 20


@dataclass(eq=False)
class Request:
    """One request on its way.

    Args:
        prompt_tokens: of its prompt.
        output_tokens: of its answer.
        arrived: seconds on the clock of the batch.
        owner: whatever waits for it; the batch does not look at it.
    """

    prompt_tokens: int
    output_tokens: int
    arrived: float
    owner: Any = None
    generated: int = 0
    verifications: int = 0
    retractions: int = 0
    started: float | None = None
    first_token: float | None = None
    ended: float | None = None
    # Tokens of its prompt (and, after a retraction, of its answer) that were read.
    read: int = 0
    # What a step brings beyond whole tokens is kept for the next.
    left_over: float = 0.0

    @property
    def context(self) -> int:
        """Tokens that it holds in the KV cache while it decodes."""
        return self.prompt_tokens + self.generated

    @property
    def done(self) -> bool:
        return self.generated >= self.output_tokens


@dataclass(frozen=True)
class Step:
    """One step of the scheduler: it was begun, and takes ``seconds``.

    Args:
        kind: what was done.
        seconds: until its tokens are there.
        tokens: read by a prefill step, or brought by a decode step.
        advanced: requests that got tokens, those that are done included.
        new: requests that a prefill step began.
        retracted: requests that lost their place.
    """

    kind: Literal["prefill", "decode"]
    seconds: float
    tokens: int
    advanced: tuple[Request, ...]
    new: int = 0
    retracted: int = 0


@dataclass
class Totals:
    """Counted since the start, or since a flush where it says so.

    Args:
        decode_steps: since the last flush.
        decode_tokens: of these steps.
        decode_requests: of these steps: how many requests each had, added up.
    """

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    retracted: int = 0
    dropped: int = 0
    passes: int = 0
    decode_passes: int = 0
    verifications: int = 0
    decode_steps: int = 0
    decode_tokens: int = 0
    decode_requests: int = 0


@dataclass
class Batch:
    """The scheduler's state.

    Args:
        behaviour: of the configuration.
        noise: relative spread of this server against others, and of its steps.
        seed: of everything random; the same one gives the same steps.
    """

    behaviour: Behaviour
    noise: float = 0.0
    seed: int = 0
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    used_tokens: int = 0
    expected: float = _EXPECTED_FIRST

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        # One server is faster than the next for all of its life: placement, clocks, memory.
        self._life = self._spread()

    def add(self, request: Request) -> None:
        """Queue a request. Its answer is cut to what the cache and the context can hold."""
        most = min(self.behaviour.numbers.context_length, self.behaviour.kv_tokens) - 1
        room = most - request.prompt_tokens
        if room < 1:
            raise ValueError(
                f"The input ({request.prompt_tokens} tokens) is longer than the model's context length "
                f"or the KV cache ({most} tokens)."
            )
        request.output_tokens = max(1, min(request.output_tokens, room))
        request.left_over = self._random.random()
        self.totals.requests += 1
        self.totals.prompt_tokens += request.prompt_tokens
        self.waiting.append(request)

    def drop(self, request: Request) -> None:
        """Forget a request whose client is gone. Safe when it is done already."""
        if request in self.running:
            self.running.remove(request)
            self.used_tokens -= request.context
        elif request in self.waiting:
            self.waiting.remove(request)
            self.used_tokens -= request.read
        else:
            return
        self.totals.dropped += 1

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self, now: float) -> Step | None:
        """Do the next step, which begins at ``now``; None when there is nothing to do."""
        step = self._prefill(now) or self._decode(now)
        if step is not None:
            self.totals.passes += 1
        return step

    def _spread(self) -> float:
        if not self.noise:
            return 1.0
        return 1 + self.noise * max(-3.0, min(3.0, self._random.gauss(0, 1)))

    def _prefill(self, now: float) -> Step | None:
        room = self.behaviour.chunked_prefill_size
        promised = sum(r.output_tokens - r.generated for r in self.running) * self.expected
        tokens, new, advanced = 0, 0, []
        while self.waiting and tokens < room:
            request = self.waiting[0]
            if len(self.running) >= self.behaviour.max_running_requests:
                break
            left = request.context - request.read
            ahead = (request.output_tokens - request.generated) * self.expected
            # A prompt that was begun has its place; with nobody else there is nothing to wait for.
            if not request.read and self.running:
                needed = self.used_tokens + promised + request.context + ahead
                if needed > self.behaviour.kv_tokens:
                    break
            part = min(left, room - tokens)
            if self.used_tokens + part > self.behaviour.kv_tokens:
                break
            tokens += part
            new += 1
            request.started = now if request.started is None else request.started
            request.read += part
            self.used_tokens += part
            if request.read < request.context:
                break
            self.waiting.popleft()
            promised += ahead
            # What is counted as read from now on is the prompt; the answer counts by itself.
            request.read = request.prompt_tokens
            advanced.append(request)
            self.running.append(request)
        if not tokens:
            return None
        seconds = prefill_seconds(self.behaviour.numbers, tokens) * self._life * self._spread()
        for request in advanced:
            self._advance(request, 1, now + seconds)
        self._leave()
        return Step("prefill", seconds, tokens, tuple(advanced), new=new)

    def _decode(self, now: float) -> Step | None:
        if not self.running:
            return None
        retracted = self._make_room()
        numbers = self.behaviour.numbers
        seconds = decode_seconds(numbers, len(self.running), self.used_tokens)
        seconds *= self._life * self._spread()
        advanced, length, brought = tuple(self.running), self.behaviour.accept_length, 0
        for request in advanced:
            tokens = 1
            if self.behaviour.drafting:
                request.verifications += 1
                request.left_over += length
                tokens = int(request.left_over)
                request.left_over -= tokens
            brought += self._advance(request, tokens, now + seconds)
        self.expected = max(
            _EXPECTED_LEAST,
            self.expected - (_EXPECTED_FIRST - _EXPECTED_LEAST) / _EXPECTED_STEPS,
        )
        self._leave()
        self.totals.decode_passes += 1
        self.totals.decode_steps += 1
        self.totals.decode_tokens += brought
        self.totals.decode_requests += len(advanced)
        self.totals.verifications += len(advanced) if self.behaviour.drafting else 0
        return Step("decode", seconds, brought, advanced, retracted=retracted)

    def _advance(self, request: Request, tokens: int, when: float) -> int:
        tokens = min(tokens, request.output_tokens - request.generated)
        request.generated += tokens
        self.used_tokens += tokens
        self.totals.generated_tokens += tokens
        if request.first_token is None:
            request.first_token = when
        if request.done:
            request.ended = when
        return tokens

    def _leave(self) -> None:
        if any(request.done for request in self.running):
            self.used_tokens -= sum(request.context for request in self.running if request.done)
            self.running = [request for request in self.running if not request.done]

    def _make_room(self) -> int:
        """Put requests back until the others can have their next tokens; how many were."""
        ahead = self.behaviour.drafting.draft_tokens if self.behaviour.drafting else 1
        count = 0
        while (
            len(self.running) > 1
            and self.used_tokens + ahead * len(self.running) > self.behaviour.kv_tokens
        ):
            # The one that has the least to lose.
            request = min(self.running, key=lambda one: one.generated)
            self.running.remove(request)
            self.used_tokens -= request.context
            request.read = 0
            request.retractions += 1
            # Behind a prompt that was begun: it holds its part of the cache already.
            self.waiting.insert(1 if self.waiting and self.waiting[0].read else 0, request)
            count += 1
        if count:
            self.totals.retracted += count
            done = sum(request.generated for request in self.running)
            whole = sum(request.output_tokens for request in self.running)
            self.expected = min(1.0, (done + _RETRACT_AHEAD * len(self.running)) / (whole + 1))
        return count
