"""A load level on a virtual clock: what the real server would be measured at, at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.engines.emulated.batching import Batch, Request
from sweeper.engines.emulated.performance import behaviour_of
from sweeper.engines.emulated.profile import Profile


@dataclass(frozen=True)
class Simulated:
    """The numbers of a level, by the definitions of :mod:`sweeper.load.metrics`.

    Args:
        output_throughput: tokens per second.
        ttft_mean: seconds.
        ttft_most: seconds.
        tpot_mean: seconds per token after the first; 0 when there are none.
        accept_length: tokens that a step brought a request on average.
        retractions: requests that were put back.
        most_running: requests that ran together at most.
        seconds: the whole level.
    """

    output_throughput: float
    ttft_mean: float
    ttft_most: float
    tpot_mean: float
    accept_length: float
    retractions: int
    most_running: int
    seconds: float


def simulate(
    profile: Profile,
    args: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    concurrency: int,
    input_tokens: int,
    output_tokens: int,
    requests: int,
    noise: float = 0.0,
    seed: int = 0,
) -> Simulated:
    """A closed loop: ``concurrency`` clients, each sends its next request when one is answered.

    Args:
        profile: the landscape.
        args: flags by their name in the parser.
        env: variables.
        concurrency: requests in flight.
        input_tokens: of each prompt.
        output_tokens: of each answer.
        requests: in all.
        noise: relative spread of speed.
        seed: of the noise.

    Raises:
        ValueError: a prompt that does not fit, or a configuration that fails.
    """
    behaviour = behaviour_of(profile, args, env)
    if behaviour.fault:
        raise ValueError(f"a server with this configuration fails: {behaviour.fault}")
    batch = Batch(behaviour, noise=noise, seed=seed)
    sent: list[Request] = []

    def send(now: float) -> None:
        if len(sent) < requests:
            sent.append(Request(input_tokens, output_tokens, arrived=now))
            batch.add(sent[-1])

    now, most = 0.0, 0
    for _ in range(concurrency):
        send(now)
    while (step := batch.step(now)) is not None:
        most = max(most, len(step.advanced) if step.kind == "decode" else 0)
        now += step.seconds
        for request in step.advanced:
            if request.done:
                send(now)
    ttft = [(r.first_token or 0.0) - r.arrived for r in sent]
    tpot = [
        ((r.ended or 0.0) - (r.first_token or 0.0)) / (r.output_tokens - 1)
        for r in sent
        if r.output_tokens > 1
    ]
    totals = batch.totals
    return Simulated(
        output_throughput=sum(r.generated for r in sent) / now,
        ttft_mean=sum(ttft) / len(ttft),
        ttft_most=max(ttft),
        tpot_mean=sum(tpot) / len(tpot) if tpot else 0.0,
        accept_length=totals.decode_tokens / totals.decode_requests
        if totals.decode_requests
        else 1.0,
        retractions=totals.retracted,
        most_running=most,
        seconds=now,
    )
