"""The server of one trial: what it is started with, how it is watched, why it failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from sweeper.engines.sglang.classify import Evidence, classify, read_lines
from sweeper.engines.sglang.ranks import ranks
from sweeper.engines.sglang.read_back import read_back
from sweeper.load.client import Progress
from sweeper.machine.kernel_events import KernelMoment, kernel_events_since
from sweeper.records.events import Failure, ReadBack, ServerReady
from sweeper.records.log import EventLog
from sweeper.records.masking import mask_text
from sweeper.search.follow import KEEP_WATCH, StartFollower
from sweeper.search.load_watch import Glimpse, LoadWatch
from sweeper.servers import tagged
from sweeper.servers.process import ServerProcess
from sweeper.servers.readiness import StartError, wait_until_ready
from sweeper.spec.schema import StartLimits

T = TypeVar("T")
_TAIL = 30
_POLL = 0.2
# A failed request may be the first that is seen of a death, a moment before the process ends.
_LAST_WORDS = 2.0
SERVING = "serving"
"""The stage of a server that was ready."""


class ServerFailedError(Exception):
    """The server is of no more use, for the reason given."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


@dataclass
class RunningServer:
    """A server that was launched.

    Args:
        process: it, and everything that it started.
        url: where it answers.
        served_name: the model name that no other server has.
        trial: the trial's number.
        env_names: the variables that the space and the engine section set.
        limits: of its start.
        answer_stall: seconds without a token under load after which it is hung.
        launched_at: where the kernel's records stood then.
        secrets: values that must not reach a record.
    """

    process: ServerProcess
    url: str
    served_name: str
    trial: int
    env_names: frozenset[str]
    limits: StartLimits
    answer_stall: float
    launched_at: KernelMoment
    secrets: frozenset[str] = frozenset()
    stage: str = "launched"
    _ranks: frozenset[tagged.ProcessRef] = field(default_factory=frozenset)

    async def until_ready(self, log: EventLog) -> None:
        """Wait for a real completion, and read back what runs.

        Raises:
            ServerFailedError: it did not come so far.
        """
        begin = time.monotonic()
        follower = StartFollower(
            self.process,
            self.trial,
            log,
            stall_after=self.limits.stall_after,
            gpu_memory=self.process.gpu_memory,
        )
        following = asyncio.ensure_future(follower.run())
        try:
            await wait_until_ready(
                self.process,
                self.url,
                served_name=self.served_name,
                give_up_after=self.limits.give_up_after,
                trouble=follower.trouble,
            )
        except StartError as error:
            follower.look()
            self.stage = follower.stage
            raise self.failed(error.kind, str(error)) from None
        finally:
            following.cancel()
        follower.look()
        log.append(
            ServerReady(
                trial=self.trial,
                start_seconds=time.monotonic() - begin,
                stages=follower.stages(),
            )
        )
        self.stage = SERVING
        self._ranks = ranks(self.process.processes())
        try:
            facts = await read_back(self.url, self.process.tag, names=self.env_names)
        except (httpx.HTTPError, ValueError) as error:
            what = f"/server_info: {type(error).__name__}"
            raise await self.failed_soon("read_back_failed", what) from None
        log.append(
            ReadBack(trial=self.trial, effective=facts.effective, scheduler_env=facts.scheduler_env)
        )

    async def watched(self, load: Coroutine[Any, Any, T], progress: Progress) -> T:
        """The result of ``load``, unless the server dies or hangs under it.

        Raises:
            ServerFailedError: it did; the load was given up at once.
        """
        watch = LoadWatch(time.monotonic(), self.answer_stall)
        looked = 0.0
        task = asyncio.ensure_future(load)
        try:
            while not (await asyncio.wait({task}, timeout=_POLL))[0]:
                now = time.monotonic()
                if now - looked > KEEP_WATCH:
                    self.process.keep_watch()
                    looked = now
                seen = Glimpse(self.process.exit_status, self._ranks_gone(), progress.tokens)
                if trouble := watch.trouble(now, seen):
                    raise self.failed(trouble.kind, trouble.what)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=5)

    async def failed_soon(self, kind: str, what: str) -> ServerFailedError:
        """As :meth:`failed`, once the server had a moment to end, which would explain it."""
        deadline = time.monotonic() + _LAST_WORDS
        while time.monotonic() < deadline:
            if self.process.exit_status is not None:
                break
            await asyncio.sleep(0.05)
        return self.failed(kind, what)

    def failed(self, kind: str, what: str) -> ServerFailedError:
        """The failure of this server: its death or the first error in its log, where they explain it.

        Args:
            kind: what was seen from outside, a class of engines/sglang/failures.toml; empty
                when it ended by itself.
            what: that in words.
        """
        status = self.process.exit_status
        found = classify(
            Evidence(
                seen=kind,
                what=what,
                lines=read_lines(self.process.log),
                exit_status=status,
                stage=self.stage,
                kernel=kernel_events_since(self.launched_at).records,
                schedulers_alive=not self._ranks_gone() if self._ranks else None,
            )
        )
        return ServerFailedError(
            Failure(
                kind=found.kind,
                what=mask_text(found.what, self.secrets),
                blame=found.blame,
                stage=found.stage,
                evidence=[mask_text(line, self.secrets) for line in found.evidence],
                advice=found.advice,
                retries=found.retry,
                tail=[mask_text(line, self.secrets) for line in self.process.tail(_TAIL)],
            )
        )

    def _ranks_gone(self) -> int:
        return sum(not rank.alive() for rank in self._ranks)
