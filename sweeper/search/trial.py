"""One trial, rung by rung, in one life of one server. Knows nothing of Ray.

Rung 0 starts the server and measures the single stream; every later rung
measures one more load level. Whatever goes wrong becomes a :class:`Failure` in
the result, and whatever happens, :meth:`TrialRun.close` leaves no process. Where
the machine is to blame, the rung is tried again on a new server and another port.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sweeper.engines.sglang.failures import failures
from sweeper.errors import MachineError
from sweeper.load.client import LevelRun, Progress, run_level
from sweeper.load.corpus import Prompt, paragraphs, prompts
from sweeper.load.metrics import level_metrics
from sweeper.load.server_api import ServerRefusedError, flush_cache, tokenize
from sweeper.records.events import Event, Failure, LevelMeasured, ServerStopped, TrialRetried
from sweeper.records.log import EventLog
from sweeper.search.director import RungResult
from sweeper.search.gpu_gate import users_of, wait_until_free
from sweeper.search.plan import Plan
from sweeper.search.server import RunningServer, ServerFailedError
from sweeper.search.start_server import start_server
from sweeper.search.start_watch import LEAST_ROOM, room_in
from sweeper.spec.candidate import Candidate

T = TypeVar("T")

# Long enough for every shape of batch to have been run once, short against a level.
WARMUP_TOKENS = 8
_POLL = 0.2


class InterruptedTrialError(Exception):
    """Somebody asked for the sweep to stop."""


class NotStoppedError(Exception):
    """A server is not gone; the message says what is left of it."""


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
        attempt: int = 0,
    ) -> None:
        self._attempt = attempt
        self._plan = plan
        self._number = number
        self._candidate = candidate
        self._worker_env = worker_env
        self._gpus = gpus
        self._log = EventLog(plan.folder.log)
        self._server: RunningServer | None = None
        self._failures: list[Failure] = []
        self._texts: list[list[int]] = []
        self._levels: dict[int, Mapping[str, float]] = {}

    def next_rung(self) -> RungResult:
        """Climb one rung. After a result that is done, the server is gone."""
        while True:
            result = self._climb()
            if not result.done:
                return result
            try:
                self.close()
            except NotStoppedError as error:
                # Its GPUs are not free, so whatever runs next would be measured wrongly.
                what = f"the server could not be stopped: {error}"
                failure = _known("not_stopped", what)
                return RungResult(self._levels, done=True, failure=failure)
            if result.failure is None or not self._try_again(result.failure):
                return self._final(result)

    def close(self) -> None:
        """Stop the server, if there is one. Safe to call again.

        Raises:
            NotStoppedError: its processes or its GPU memory are still there.
        """
        if self._server is None:
            return
        process, self._server = self._server.process, None
        stopped = process.stop()
        self._tell(
            ServerStopped(
                trial=self._number,
                stop_seconds=stopped.seconds,
                exit_status=stopped.exit_status,
                leftovers=stopped.killed,
                port_free=stopped.port_free,
                gpu_memory_back=stopped.gpu_memory_back,
                problems=list(stopped.problems),
            )
        )
        # Ports are not looked at: the next server gets others.
        if stopped.left or stopped.gpu_memory_back is False:
            raise NotStoppedError("; ".join(stopped.problems))

    def _tell(self, event: Event) -> None:
        """Into the log, where it can be written: what is left to do is more important."""
        with contextlib.suppress(OSError):
            self._log.append(event)

    def _try_again(self, failure: Failure) -> bool:
        """Whether another start makes sense; it is counted and recorded."""
        most = min(failure.retries, self._plan.space.engine.start.retries)
        if len(self._failures) >= most or self._plan.folder.stop_request.exists():
            return False
        self._failures.append(failure)
        self._tell(
            TrialRetried(
                trial=self._number,
                attempt=self._attempt + len(self._failures),
                failure=failure,
            )
        )
        return True

    def _final(self, result: RungResult) -> RungResult:
        """What fails in the same way on a fresh server is the configuration's fault."""
        failure = result.failure
        if failure is None or failure.blame != "unknown":
            return result
        if failure.kind not in [earlier.kind for earlier in self._failures]:
            return result
        times = len(self._failures) + 1
        changed = failure.model_copy(
            update={"blame": "configuration", "what": f"{failure.what} ({times} times)"}
        )
        return replace(result, failure=changed)

    def _climb(self) -> RungResult:
        levels = self._plan.space.workload.concurrency
        level = levels[len(self._levels)]
        try:
            self._levels[level] = asyncio.run(self._unless_stopped(self._rung(level)))
        except InterruptedTrialError:
            return RungResult(self._levels, done=True, interrupted=True)
        except ServerFailedError as failed:
            return RungResult(self._levels, done=True, failure=failed.failure)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                failure = _known("disk_full", str(error))
                return RungResult(self._levels, done=True, failure=failure)
            # A fault of ours must cost one trial, not the night.
            tail = traceback.format_exc().splitlines()[-12:]
            what = f"the sweeper itself failed: {type(error).__name__}: {error}"
            failure = _known("sweeper_error", what, tail)
            return RungResult(self._levels, done=True, failure=failure)
        return RungResult(self._levels, done=len(self._levels) == len(levels))

    async def _rung(self, level: int) -> Mapping[str, float]:
        if self._server is None:
            room = room_in(self._plan.folder.path)
            if room is not None and room < LEAST_ROOM:
                what = f"only {room >> 20} MiB are free in {self._plan.folder.path}"
                raise ServerFailedError(_known("disk_full", what))
            await self._free_gpus()
            try:
                self._server = start_server(
                    self._plan,
                    self._number,
                    self._candidate,
                    worker_env=self._worker_env,
                    gpus=self._gpus,
                    attempt=self._attempt + len(self._failures),
                )
            except (OSError, MachineError) as error:
                raise ServerFailedError(_known("launch_failed", str(error))) from None
            await self._server.until_ready(self._log)
            self._texts = await self._asked(
                tokenize(self._server.url, self._server.served_name, paragraphs())
            )
        return await self._measure(level)

    async def _free_gpus(self) -> None:
        """Wait until nobody else is on the trial's GPUs, or as long as the file says."""
        if not self._gpus:
            return
        policy, stop = self._plan.space.gpus, self._plan.folder.stop_request.exists
        try:
            await asyncio.to_thread(
                wait_until_free, lambda: users_of(self._gpus), policy, stop=stop
            )
        except MachineError as error:
            raise ServerFailedError(_known("gpus_busy", error.what)) from None

    async def _measure(self, level: int) -> Mapping[str, float]:
        assert self._server is not None
        load, server = self._plan.space.workload, self._server
        begin = time.monotonic()
        try:
            async with asyncio.timeout(load.level_timeout):
                await self._load(level, level, "warm-up", min(WARMUP_TOKENS, load.output_tokens))
                await self._asked(flush_cache(server.url))
                warm = time.monotonic()
                count = level * load.requests_per_stream
                run = await self._load(level, count, "measured", load.output_tokens)
        except TimeoutError:
            what = f"concurrency {level} took longer than {load.level_timeout:g} s"
            raise await server.failed_soon("level_timeout", what) from None
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
            count_failed = f"{len(run.failed)} of {len(run.answered) + len(run.failed)} requests"
            what = f"{count_failed} failed at concurrency {level}: {run.failed[0].why}"
            raise await server.failed_soon("request_errors", what)
        return metrics

    async def _load(self, level: int, count: int, purpose: str, output_tokens: int) -> LevelRun:
        assert self._server is not None
        progress = Progress()
        return await self._server.watched(
            run_level(
                self._server.url,
                self._prompts(level, count, purpose),
                concurrency=level,
                output_tokens=output_tokens,
                request_timeout=self._plan.space.workload.request_timeout,
                progress=progress,
            ),
            progress,
        )

    def _prompts(self, level: int, count: int, purpose: str) -> list[Prompt]:
        """Fresh ones for each level, the same for every candidate."""
        length = self._plan.space.workload.input_tokens
        seed = f"{self._plan.space.search.seed}/{purpose}/{level}"
        return prompts(self._texts, count=count, length=length, seed=seed)

    async def _asked(self, request: Coroutine[Any, Any, T]) -> T:
        assert self._server is not None
        try:
            return await request
        except ServerRefusedError as error:
            kind = "refused_requests" if error.answered else "request_errors"
            raise await self._server.failed_soon(kind, str(error)) from None

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


def _known(kind: str, what: str, tail: Sequence[str] = ()) -> Failure:
    """A failure that needs no log to be classified."""
    known = failures()[kind]
    return Failure(
        kind=kind,
        what=what,
        blame=known.blame,
        advice=known.advice,
        retries=known.retry,
        tail=list(tail),
    )
