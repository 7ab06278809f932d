"""The requests that mean work: they are queued, and answered as the scheduler brings tokens."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sweeper.engines.emulated import words
from sweeper.engines.emulated.batching import Request
from sweeper.engines.emulated.generation import DONE, Asked, Kind, Reply, asked, error_body
from sweeper.engines.emulated.load_faults import TRICKLE, LoadFaults, Outcome
from sweeper.engines.emulated.metrics_text import Metrics
from sweeper.engines.emulated.performance import Behaviour
from sweeper.engines.emulated.scheduler import Scheduler
from sweeper.engines.emulated.server_info import served_name
from sweeper.engines.emulated.settings import Settings

if TYPE_CHECKING:
    from aiohttp import web

_DIES_AFTER = 0.2
"""Seconds from the request that a server dies of, so that it dies while it works on it."""

_WHY = "CUDA error: an illegal memory access was encountered"


class Answering:
    """Answers the three generating endpoints and ``/tokenize``.

    Args:
        settings: what the server was told.
        behaviour: what came out.
        scheduler: where requests are queued.
        faults: counts requests, and says what becomes of each.
        ready: set when the start is over; until then completions wait.
        die: ends the process as the fault of that name does.
    """

    def __init__(
        self,
        settings: Settings,
        behaviour: Behaviour,
        scheduler: Scheduler,
        faults: LoadFaults,
        *,
        ready: asyncio.Event,
        die: Callable[[str], None],
    ) -> None:
        self.metrics = Metrics()
        self._behaviour, self._scheduler, self._faults = behaviour, scheduler, faults
        self._ready, self._die = ready, die
        self._name, self._answer = served_name(settings), words.Answer()
        args = settings.args
        self._interval = max(1, int(args.get("stream_interval") or 1))
        self._incremental = bool(args.get("incremental_streaming_output"))
        self._with_text = not args.get("skip_tokenizer_init")

    async def tokenize(self, request: web.Request) -> web.Response:
        """Token ids of one text or several."""
        from aiohttp import web

        self._next_request()
        try:
            body = await _json(request)
        except ValueError as error:
            return _bad_request(error)
        prompt = body.get("prompt", "") if isinstance(body, dict) else ""
        several = isinstance(prompt, list)
        tokens = [words.tokenize(str(text)) for text in (prompt if several else [prompt])]
        counts = [len(each) for each in tokens]
        return web.json_response(
            {
                "tokens": tokens if several else tokens[0],
                "count": counts if several else counts[0],
                "max_model_len": self._behaviour.numbers.context_length,
            }
        )

    async def generate(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        """One completion."""
        from aiohttp import web

        await self._ready.wait()
        outcome = self._next_request()
        if outcome == "http_500":
            return web.Response(status=500, text="Internal Server Error")
        if outcome == "never":
            await asyncio.Event().wait()
        changed = asyncio.Event()
        try:
            wanted = asked(kind, await _json(request))
            work = self._queue(wanted, changed)
        except (ValueError, TypeError, AttributeError) as error:
            return _bad_request(error)
        reply = Reply(
            kind,
            rid=uuid.uuid4().hex,
            model=self._name,
            asked=wanted,
            request=work,
            answer=self._answer,
            drafting=self._behaviour.drafting,
            incremental=self._incremental,
            with_text=self._with_text,
            usage=outcome != "no_usage",
        )
        try:
            if wanted.stream:
                return await self._stream(request, reply, changed, outcome)
            return await self._whole(reply, changed, outcome)
        finally:
            self._scheduler.drop(work)
            self.metrics.ended(work)

    def _queue(self, wanted: Asked, changed: asyncio.Event) -> Request:
        work = Request(
            wanted.prompt_tokens,
            wanted.output_tokens,
            arrived=self._scheduler.now(),
            owner=lambda _: changed.set(),
        )
        self._scheduler.submit(work)
        return work

    def _next_request(self) -> Outcome:
        outcome = self._faults.next_request()
        if self._faults.stops:
            self._scheduler.freeze()
        if self._faults.trickles:
            self._scheduler.slowest_step = TRICKLE
        if outcome == "die":
            # SIGTERM lets requests end; in all other cases nothing ever comes back.
            if self._faults.fault != "terminated_from_outside":
                self._scheduler.freeze()
            asyncio.get_running_loop().call_later(_DIES_AFTER, self._die, self._faults.fault)
        return outcome

    async def _whole(self, reply: Reply, changed: asyncio.Event, outcome: Outcome) -> web.Response:
        from aiohttp import web

        done = False
        while not done:
            await changed.wait()
            changed.clear()
            done = reply.request.done
        if outcome in ("error_chunk", "cut"):
            body = error_body(_WHY, 500)
            return web.Response(status=500, text=body, content_type="application/json")
        return web.Response(text=reply.whole(), content_type="application/json")

    async def _stream(
        self, request: web.Request, reply: Reply, changed: asyncio.Event, outcome: Outcome
    ) -> web.StreamResponse:
        from aiohttp import web

        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        work, done = reply.request, False
        while not done:
            await changed.wait()
            changed.clear()
            if not response.prepared:
                await response.prepare(request)
            # The batch counts a step's tokens when it begins; they are there when it has ended,
            # which is when we are woken.
            done, new = work.done, work.generated - reply.sent
            if outcome == "error_chunk":
                await response.write(f"data: {error_body(_WHY, 500)}\n\n".encode() + DONE)
                return response
            if outcome == "cut" and work.generated > work.output_tokens // 2:
                return response
            if new and (not reply.sent or new >= self._interval or done):
                await response.write(reply.chunk())
        usage = reply.last_usage() if reply.kind != "generate" and reply.asked.usage else b""
        await response.write(usage + DONE)
        return response


def _bad_request(error: Exception) -> web.Response:
    from aiohttp import web

    body = error_body(str(error), 400)
    return web.Response(status=400, text=body, content_type="application/json")


async def _json(request: web.Request) -> Any:
    try:
        return json.loads(await request.read() or b"null")
    except ValueError:
        raise ValueError("The body is no JSON.") from None
