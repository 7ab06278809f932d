"""No request is lost, and the KV cache never holds more than it can."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.engines.emulated.batching import Batch, Request
from sweeper.engines.emulated.performance import behaviour_of
from sweeper.engines.emulated.profile import load_profile

FLAT = load_profile("flat")


def batch(**args: int | str) -> Batch:
    return Batch(behaviour_of(FLAT, args, {}))


def drain(work: Batch) -> float:
    now = 0.0
    while (step := work.step(now)) is not None:
        assert step.seconds > 0
        assert work.used_tokens <= work.behaviour.kv_tokens + len(work.running)
        assert work.used_tokens == sum(r.context for r in work.running) + sum(
            r.read for r in work.waiting
        )
        now += step.seconds
    return now


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 300)), min_size=1, max_size=30),
    st.integers(350, 2000),
    st.integers(1, 16),
    st.integers(16, 512),
)
def test_every_request_is_answered_in_full(
    sizes: list[tuple[int, int]], cache: int, most: int, chunk: int
) -> None:
    work = batch(max_total_tokens=cache, max_running_requests=most, chunked_prefill_size=chunk)
    taken = []
    for prompt, output in sizes:
        request = Request(prompt, output, arrived=0.0)
        try:
            work.add(request)
        except ValueError:
            assert prompt >= cache - 1
            continue
        taken.append(request)
    drain(work)
    assert work.idle
    assert work.used_tokens == 0
    assert all(request.generated == request.output_tokens for request in taken)
    assert all((request.ended or 0) >= (request.first_token or 0) > 0 for request in taken)


def test_a_full_cache_puts_requests_back() -> None:
    work = batch(max_total_tokens=1000, max_running_requests=100)
    work.expected = 0.0
    requests = [Request(40, 200, arrived=0.0) for _ in range(20)]
    for request in requests:
        work.add(request)
    drain(work)
    assert work.totals.retracted > 0
    assert sum(request.retractions for request in requests) == work.totals.retracted
    assert work.expected > 0


def test_an_answer_is_cut_to_what_fits() -> None:
    work = batch(max_total_tokens=100)
    request = Request(60, 500, arrived=0.0)
    work.add(request)
    assert request.output_tokens == 39
    with pytest.raises(ValueError, match="longer than"):
        work.add(Request(100, 1, arrived=0.0))


def test_a_long_prompt_is_read_in_chunks() -> None:
    work = batch(chunked_prefill_size=100)
    work.add(Request(250, 2, arrived=0.0))
    steps = [work.step(0.0) for _ in range(4)]
    assert [(s.kind, s.tokens) for s in steps if s] == [
        ("prefill", 100),
        ("prefill", 100),
        ("prefill", 50),
        ("decode", 1),
    ]


def test_a_client_that_left_frees_its_place() -> None:
    work = batch()
    running, waiting = Request(10, 50, arrived=0.0), Request(10, 50, arrived=0.0)
    work.add(running)
    work.step(0.0)
    work.step(0.0)
    work.add(waiting)
    work.drop(running)
    work.drop(waiting)
    work.drop(waiting)
    assert work.idle
    assert work.used_tokens == 0
    assert work.totals.dropped == 2


def test_speculation_brings_several_tokens_a_step() -> None:
    work = Batch(
        behaviour_of(load_profile("kimi-k2.5-8gpu"), {"speculative_algorithm": "EAGLE3"}, {})
    )
    request = Request(10, 1001, arrived=0.0)
    work.add(request)
    drain(work)
    assert 1000 / request.verifications == pytest.approx(work.behaviour.accept_length, rel=0.01)


def test_the_seed_decides_the_noise() -> None:
    def seconds(seed: int) -> float:
        work = Batch(behaviour_of(FLAT, {}, {}), noise=0.02, seed=seed)
        work.add(Request(10, 50, arrived=0.0))
        return drain(work)

    assert seconds(1) == seconds(1) != seconds(2)
