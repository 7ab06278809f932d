"""The scheduler keeps the time of its model, whatever the machine does in between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest

from sweeper.engines.emulated.batching import Batch, Request
from sweeper.engines.emulated.performance import behaviour_of
from sweeper.engines.emulated.profile import load_profile
from sweeper.engines.emulated.scheduler import Scheduler


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    alive: Callable[[], bool] = lambda: True, log: list[str] | None = None, **args: int | str
) -> AsyncIterator[Scheduler]:
    lines = [] if log is None else log
    batch = Batch(behaviour_of(load_profile("flat"), args, {}))
    scheduler = Scheduler(batch, alive=alive, log=lines.append, decode_log_interval=8)
    task = asyncio.create_task(scheduler.run())
    try:
        yield scheduler
    finally:
        task.cancel()


class Client:
    """Waits for a request, and notes what it saw at each step."""

    def __init__(self, scheduler: Scheduler, prompt: int = 10, output: int = 20) -> None:
        self.counts: list[int] = []
        self._done = asyncio.Event()
        self._changed = asyncio.Event()
        self.request = Request(prompt, output, scheduler.now(), owner=lambda _: self._changed.set())
        scheduler.submit(self.request)

    async def until_done(self) -> None:
        while not self.counts or self.counts[-1] < self.request.output_tokens:
            await self._changed.wait()
            self._changed.clear()
            self.counts.append(self.request.generated)


def server_seconds(client: Client) -> float:
    assert client.request.ended is not None
    return client.request.ended - client.request.arrived


async def test_each_step_brings_one_token_and_takes_its_time() -> None:
    async with running() as scheduler:
        begin = time.monotonic()
        client = Client(scheduler, output=50)
        await asyncio.wait_for(client.until_done(), 10)
        took = time.monotonic() - begin
    assert client.counts == list(range(1, 51))
    # One step of 10.2 ms and 49 of 8.1 ms. A busy machine may add to it, and can take nothing away.
    assert took >= 0.406
    assert server_seconds(client) == pytest.approx(0.406, abs=0.01)


async def test_work_in_between_does_not_slow_the_server_down() -> None:
    async with running() as scheduler:
        client = Client(scheduler, output=60)
        real = client.request.owner

        def busy(request: Request) -> None:
            time.sleep(0.004)  # half a step of sending
            real(request)

        client.request.owner = busy
        await asyncio.wait_for(client.until_done(), 10)
    assert server_seconds(client) == pytest.approx(0.487, abs=0.02)  # and not 0.73


async def test_requests_above_the_limit_wait() -> None:
    async with running(max_running_requests=2) as scheduler:
        clients = [Client(scheduler) for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*(c.until_done() for c in clients)), 10)
    first, second, third = (client.request for client in clients)
    assert first.ended == second.ended
    assert (third.started or 0) >= (first.ended or 0)


async def test_frozen_or_dead_nothing_comes_back() -> None:
    alive = True
    async with running(alive=lambda: alive) as scheduler:
        client = Client(scheduler, output=10_000)
        task = asyncio.create_task(client.until_done())
        await until(lambda: len(client.counts) >= 3)
        alive = False
        assert not await scheduler.until_idle(0.3)
        seen = len(client.counts)
        assert not await scheduler.until_idle(0.2)
        assert len(client.counts) <= seen + 1
        alive = True
        await until(lambda: len(client.counts) >= seen + 3)
        scheduler.freeze()
        await asyncio.sleep(0.05)
        seen = len(client.counts)
        await asyncio.sleep(0.1)
        assert len(client.counts) == seen
        task.cancel()
        scheduler.drop(client.request)
        assert await scheduler.until_idle(1)


async def test_lines_as_the_recordings_have_them() -> None:
    log: list[str] = []
    async with running(log=log) as scheduler:
        await asyncio.wait_for(Client(scheduler, output=20).until_done(), 10)
        assert scheduler.tick.gen_throughput > 0
    assert log[0].startswith(
        "Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 0, token usage: 0.00, "
        "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput"
    )
    assert log[1].startswith("Decode batch, #running-req: 1, #token: 19, token usage: 0.00, cuda")
    assert log[1].endswith(", #queue-req: 0")
    assert len(log) == 3


async def test_the_accept_length_is_told_at_ticks_and_forgotten_by_a_flush() -> None:
    log: list[str] = []
    async with running(log=log, speculative_algorithm="EAGLE3") as scheduler:
        client = Client(scheduler, output=7)
        await asyncio.wait_for(client.until_done(), 10)
        assert scheduler.tick.accept_length is None
        client = Client(scheduler, output=9)
        await asyncio.wait_for(client.until_done(), 10)
        assert scheduler.tick.accept_length == pytest.approx(1.0)
        assert "accept len: 1.00, accept rate: 0.00, " in log[-1]
        scheduler.flush()
        assert scheduler.tick.accept_length is None
