"""The HTTP side of the emulated engine: SGLang's endpoints, in front of the scheduler.

::

    server = Server(settings, socket=bound, log=..., alive=..., die=...)
    await server.start()          # answers; /health says 503, and completions wait
    server.set_ready()            # from now on everything is answered
    await server.serve_forever()  # until cancelled, or until close() was called

``settings.fault`` decides what goes wrong; a fault that the profile has for the
configuration acts in its place when there is none. Faults under load that end
the server call ``die`` once, from the event loop, when their request has come;
from then on no token comes back.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sweeper.engines.emulated.answering import Answering
from sweeper.engines.emulated.batching import Batch
from sweeper.engines.emulated.load_faults import LoadFaults
from sweeper.engines.emulated.performance import behaviour_of
from sweeper.engines.emulated.profile import load_profile
from sweeper.engines.emulated.scheduler import Scheduler
from sweeper.engines.emulated.server_info import model_info, served_name, server_info
from sweeper.engines.emulated.settings import Settings

if TYPE_CHECKING:
    from aiohttp import web

Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
Access = Callable[[str, str, str, int], None]
"""Told of each answered request: client, method, path and status."""

HEALTH_TIMEOUT = 20.0
"""Seconds after which SGLang's ``/health`` gives up on its schedulers."""

_CUT_AFTER = 0.2
"""Seconds that requests in flight have to end when the server closes."""
_LARGEST_BODY = 256 * 1024 * 1024
# Answered without a key, and by a server that refuses everything else.
_OPEN = ("/health", "/health_generate", "/metrics", "/ready")


class Server:
    """One emulated server behind a socket.

    Args:
        settings: what it was told.
        socket: bound and listening.
        log: writes one line of SGLang's logger, without its timestamp.
        alive: whether all schedulers live; without them nothing is generated.
        die: ends the process as the fault of that name does.
        rank_log: as ``log``, for lines of the scheduler of rank 0; ``log`` by default.
        access: for lines about answered requests; uvicorn's words through ``log`` by default.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        socket: sockets.socket,
        log: Callable[[str], None],
        alive: Callable[[], bool] = lambda: True,
        die: Callable[[str], None] = lambda _: None,
        rank_log: Callable[[str], None] | None = None,
        access: Access | None = None,
    ) -> None:
        profile = load_profile(settings.profile)
        self.behaviour = behaviour_of(profile, settings.args, settings.env)
        self._settings, self._socket = settings, socket
        self._log, self._alive = log, alive
        self._access = access or self._plain_access
        args = settings.args
        noise = profile.noise if settings.noise is None else settings.noise
        self.scheduler = Scheduler(
            Batch(self.behaviour, noise=noise, seed=settings.seed),
            alive=alive,
            log=rank_log or log,
            decode_log_interval=int(args.get("decode_log_interval") or 40),
        )
        self._faults = LoadFaults(settings.fault or self.behaviour.fault, settings.fault_at)
        self._name = served_name(settings)
        self._ready, self._closed = asyncio.Event(), asyncio.Event()
        self._answering = Answering(
            settings, self.behaviour, self.scheduler, self._faults, ready=self._ready, die=die
        )
        self._runner: web.AppRunner | None = None
        self._loop: asyncio.Task[None] | None = None

    @property
    def requests_in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self.scheduler.batch.running) + len(self.scheduler.batch.waiting)

    async def start(self) -> None:
        """Begin to answer, as a server that is not ready."""
        from aiohttp import web

        app = web.Application(middlewares=[self._outermost()], client_max_size=_LARGEST_BODY)
        app.add_routes([web.route(*route) for route in self._routes()])
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_CUT_AFTER
        )
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, backlog=2048).start()
        self._loop = asyncio.create_task(self.scheduler.run())

    def set_ready(self) -> None:
        """Say that the start is over."""
        self._ready.set()

    async def serve_forever(self) -> None:
        """Answer until cancelled or closed.

        Raises:
            Exception: the scheduler itself failed, which is a mistake in it.
        """
        closed = asyncio.create_task(self._closed.wait())
        assert self._loop is not None
        try:
            await asyncio.wait({closed, self._loop}, return_when=asyncio.FIRST_COMPLETED)
            if self._loop.done() and not self._closed.is_set():
                self._loop.result()
        finally:
            closed.cancel()
            await self.close()

    async def close(self) -> None:
        """Answer no more. Requests in flight are cut. Safe to call again."""
        self._closed.set()
        if self._loop is not None:
            self._loop.cancel()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def _routes(self) -> list[tuple[str, str, Handler]]:
        both = "GET", "POST"
        reads: dict[str, Handler] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/ready": self._is_ready,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/v1/models": self._models,
        }
        if self._settings.args.get("enable_metrics") and self._faults.fault != "metrics_missing":
            reads["/metrics"] = self._show_metrics
        posts: dict[str, Handler] = {
            "/generate": partial(self._answering.generate, kind="generate"),
            "/v1/completions": partial(self._answering.generate, kind="completion"),
            "/v1/chat/completions": partial(self._answering.generate, kind="chat"),
            "/tokenize": self._answering.tokenize,
            "/v1/tokenize": self._answering.tokenize,
        }
        return [
            *(("GET", path, handler) for path, handler in reads.items()),
            *(("POST", path, handler) for path, handler in posts.items()),
            *((method, "/flush_cache", self._flush_cache) for method in both),
        ]

    def _outermost(self) -> Any:
        from aiohttp import web

        @web.middleware
        async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                response = self._refused(request) or await handler(request)
            except web.HTTPException as error:
                response = web.json_response({"detail": error.reason}, status=error.status)
            peer = request.transport.get_extra_info("peername") if request.transport else None
            client = f"{peer[0]}:{peer[1]}" if peer else "-"
            self._access(client, request.method, request.path_qs, response.status)
            return response

        return outermost

    def _plain_access(self, client: str, method: str, path: str, status: int) -> None:
        from http import HTTPStatus

        words = f"{status} {HTTPStatus(status).phrase}"
        self._log(f'INFO:     {client} - "{method} {path} HTTP/1.1" {words}')

    def _refused(self, request: web.Request) -> web.Response | None:
        from aiohttp import web

        if request.path in _OPEN:
            return None
        key = self._settings.args.get("api_key")
        wrong = bool(key) and request.headers.get("Authorization") != f"Bearer {key}"
        refuses = self._faults.fault == "refuses" and self._ready.is_set()
        if wrong or refuses:
            return web.json_response({"error": "Unauthorized"}, status=401)
        return None

    # Questions about the server

    async def _health(self, _: web.Request) -> web.Response:
        from aiohttp import web

        if not self._ready.is_set():
            return web.Response(status=200 if self._faults.fault == "health_lies" else 503)
        if self._faults.stops and self._faults.fault == "hang_under_load":
            await asyncio.sleep(HEALTH_TIMEOUT)
            self._log(
                "Health check failed. Server couldn't get a response from detokenizer for last "
                f"{HEALTH_TIMEOUT:.0f} seconds."
            )
            return web.Response(status=503)
        return web.Response(status=200 if self._alive() else 503)

    async def _is_ready(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(status=200 if self._ready.is_set() else 503)

    async def _model_info(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response(model_info(self._settings))

    async def _server_info(self, _: web.Request) -> web.Response:
        from aiohttp import web

        if self._faults.fault == "server_info_broken" and self._ready.is_set():
            return web.Response(status=500, text="Internal Server Error")
        body = server_info(
            self._settings,
            self.behaviour,
            status="ready" if self._ready.is_set() else "starting",
            tick=self.scheduler.tick,
            decode_steps=self.scheduler.batch.totals.decode_steps,
        )
        return web.json_response(body)

    async def _models(self, _: web.Request) -> web.Response:
        from aiohttp import web

        length = self.behaviour.numbers.context_length
        model = {"id": self._name, "object": "model", "owned_by": "sglang", "max_model_len": length}
        return web.json_response({"object": "list", "data": [model]})

    async def _show_metrics(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(text=self._answering.metrics.text(self.scheduler, self._name))

    async def _flush_cache(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if not await self.scheduler.until_idle(float(request.query.get("timeout", 0))):
            text = f"Cache not flushed because there are pending requests. {self._pending()}"
            return web.Response(status=400, text=text)
        self.scheduler.flush()
        return web.Response(text="Cache flushed.\nPlease check backend logs for more details.\n")

    def _pending(self) -> str:
        batch = self.scheduler.batch
        return f"#queue-req: {len(batch.waiting)}, #running-req: {len(batch.running)}"
