"""One trial, rung by rung, in one life of one server. Knows nothing of Ray.

Rung 0 starts the server and measures the single stream; every later rung
measures one more load level. Whatever goes wrong becomes a :class:`Failure` in
the result, and whatever happens, :meth:`TrialRun.close` leaves no process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from sweeper.load.client import run_level
from sweeper.load.corpus import Prompt, paragraphs, prompts
from sweeper.load.metrics import level_metrics
from sweeper.load.server_api import ServerRefusedError, flush_cache, tokenize
from sweeper.records.events import Failure, LevelMeasured, ServerStopped
from sweeper.records.log import EventLog
from sweeper.search.director import RungResult
from sweeper.search.plan import Plan
from sweeper.search.server import RunningServer, start_server
from sweeper.spec.candidate import Candidate

T = TypeVar("T")

# Long enough for every shape of batch to have been run once, short against a level.
WARMUP_TOKENS = 8
_POLL = 0.2


class InterruptedTrialError(Exception):
    """Somebody asked for the sweep to stop."""


class TrialFailedError(Exception):
    """The trial has no result, for the reason given."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class TrialRun:
    """The trial while it runs."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        candidate: Candidate,
        *,
        worker_env: Mapping[str, str],
        gpus: list[str],
    ) -> None:
        self._plan = plan
        self._number = number
        self._candidate = candidate
        self._worker_env = worker_env
        self._gpus = gpus
        self._log = EventLog(plan.folder.log)
        self._server: RunningServer | None = None
        self._texts: list[list[int]] = []
        self._levels: dict[int, Mapping[str, float]] = {}

    def next_rung(self) -> RungResult:
        """Climb one rung. After a result that is done, the server is gone."""
        result = self._climb()
        if result.done:
            try:
                self.close()
            except TimeoutError as error:
                # Its GPUs are not free, so whatever runs next would be measured wrongly.
                what = f"the server could not be stopped: {error}"
                failure = Failure(kind="not_stopped", what=what, blame="machine")
                return RungResult(self._levels, done=True, failure=failure)
        return result

    def close(self) -> None:
        """Stop the server, if there is one. Safe to call again.

        Raises:
            TimeoutError: processes that even KILL does not end.
        """
        if self._server is None:
            return
        process, self._server = self._server.process, None
        begin = time.monotonic()
        killed = process.stop()
        self._log.append(
            ServerStopped(
                trial=self._number,
                stop_seconds=time.monotonic() - begin,
                exit_status=process.exit_status,
                leftovers=killed,
            )
        )

    def _climb(self) -> RungResult:
        levels = self._plan.space.workload.concurrency
        level = levels[len(self._levels)]
        try:
            self._levels[level] = asyncio.run(self._unless_stopped(self._rung(level)))
        except InterruptedTrialError:
            return RungResult(self._levels, done=True, interrupted=True)
        except TrialFailedError as failed:
            return RungResult(self._levels, done=True, failure=failed.failure)
        except Exception as error:
            # A fault of ours must cost one trial, not the night.
            tail = traceback.format_exc().splitlines()[-12:]
            what = f"the sweeper itself failed: {type(error).__name__}: {error}"
            failure = Failure(kind="sweeper_error", what=what, blame="machine", tail=tail)
            return RungResult(self._levels, done=True, failure=failure)
        return RungResult(self._levels, done=len(self._levels) == len(levels))

    async def _rung(self, level: int) -> Mapping[str, float]:
        if self._server is None:
            self._server = start_server(
                self._plan,
                self._number,
                self._candidate,
                worker_env=self._worker_env,
                gpus=self._gpus,
            )
            if failure := await self._server.until_ready(self._log):
                raise TrialFailedError(failure)
            self._texts = await self._asked(
                tokenize(self._server.url, self._server.served_name, paragraphs())
            )
        return await self._measure(level)

    async def _measure(self, level: int) -> Mapping[str, float]:
        assert self._server is not None
        load, server = self._plan.space.workload, self._server
        begin = time.monotonic()
        try:
            async with asyncio.timeout(load.level_timeout):
                await run_level(
                    server.url,
                    self._prompts(level, level, "warm-up"),
                    concurrency=level,
                    output_tokens=min(WARMUP_TOKENS, load.output_tokens),
                    request_timeout=load.request_timeout,
                )
                await self._asked(flush_cache(server.url))
                warm = time.monotonic()
                run = await run_level(
                    server.url,
                    self._prompts(level, level * load.requests_per_stream, "measured"),
                    concurrency=level,
                    output_tokens=load.output_tokens,
                    request_timeout=load.request_timeout,
                )
        except TimeoutError:
            limit = f"{load.level_timeout:g} s"
            raise self._failed(
                "level_timeout", f"concurrency {level} took longer than {limit}"
            ) from None
        metrics = level_metrics(run.answered)
        self._log.append(
            LevelMeasured(
                trial=self._number,
                concurrency=level,
                requests=len(run.answered) + len(run.failed),
                failed_requests=len(run.failed),
                seconds=time.monotonic() - warm,
                warmup_seconds=warm - begin,
                metrics=metrics,
            )
        )
        if run.failed:
            count = f"{len(run.failed)} of {len(run.answered) + len(run.failed)} requests"
            raise self._failed(
                "requests_failed", f"{count} failed at concurrency {level}: {run.failed[0].why}"
            )
        return metrics

    def _prompts(self, level: int, count: int, purpose: str) -> list[Prompt]:
        """Fresh ones for each level, the same for every candidate."""
        length = self._plan.space.workload.input_tokens
        seed = f"{self._plan.space.search.seed}/{purpose}/{level}"
        return prompts(self._texts, count=count, length=length, seed=seed)

    async def _asked(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return await request
        except ServerRefusedError as error:
            raise self._failed("server_refused", str(error)) from None

    def _failed(self, kind: str, what: str) -> TrialFailedError:
        """The failure, or the death of the server where that explains it."""
        assert self._server is not None
        return TrialFailedError(self._server.failure(kind, what))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_POLL))[0]:
                if self._plan.folder.stop_request.exists():
                    raise InterruptedTrialError
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        return task.result()
