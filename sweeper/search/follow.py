"""Follows the start of a server: its stages into the record, its movement for the verdict."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from sweeper.engines.sglang.classify import port_is_taken
from sweeper.engines.sglang.log_reader import LogReader
from sweeper.engines.sglang.ranks import ranks
from sweeper.engines.sglang.start_progress import Progress, StartProgress
from sweeper.records import events as ev
from sweeper.records.log import EventLog
from sweeper.search.start_watch import StartSigns, room_in, start_trouble
from sweeper.servers.activity import StallWatch, look
from sweeper.servers.process import ServerProcess
from sweeper.servers.readiness import StartError
from sweeper.servers.tagged import ProcessRef

# What the server writes because we ask whether it is ready: no sign that it moves.
_ANSWERS_US = re.compile(r'"(GET /(health|v1/models)|POST /generate) HTTP/')
_TELL_EVERY = 2.0
KEEP_WATCH = 2.0
"""Seconds between two looks at what a server holds, and at its watcher."""


class StartFollower:
    """Looks at a starting server now and then."""

    def __init__(
        self,
        server: ServerProcess,
        trial: int,
        log: EventLog,
        *,
        stall_after: float,
        gpu_memory: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._server = server
        self._trial = trial
        self._log = log
        self._gpu_memory = gpu_memory
        # A short limit, as tests set it, needs more looks.
        self._stall_after = stall_after
        self._every = min(0.5, stall_after / 6)
        self._reader = LogReader(server.log)
        self._progress = StartProgress()
        self._begin = time.monotonic()
        self._lines = 0
        self._signs = StartSigns()
        self._ranks: frozenset[ProcessRef] = frozenset()
        self._rank_gone_at: float | None = None
        self._port_taken_at: float | None = None
        self._watch: StallWatch | None = None
        self._told_stage = ""
        self._told: Progress | None = None
        self._told_at = 0.0
        self._watched_at = 0.0

    @property
    def stage(self) -> str:
        """The furthest stage so far."""
        return self._progress.stage

    def trouble(self) -> StartError | None:
        """What is wrong with a server that has not ended, at the last look."""
        return start_trouble(self._signs, self._stall_after)

    def stages(self) -> dict[str, float]:
        """Seconds that each stage took."""
        return self._progress.stages(time.monotonic() - self._begin)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._every)

    def look(self) -> None:
        """Read what is new in the log, and see what moved."""
        now = time.monotonic()
        for line in self._reader.read():
            self._progress.feed(line, now - self._begin)
            self._lines += not _ANSWERS_US.search(line.text)
            if self._port_taken_at is None and port_is_taken(line.text):
                self._port_taken_at = now
        # A bar ends its line when it goes on, so its latest state has no end yet.
        for line in self._reader.unfinished():
            if line.progress:
                self._progress.feed(line, now - self._begin)
        self._tell(now)
        if now - self._watched_at > KEEP_WATCH:
            self._server.keep_watch()
            self._watched_at = now
        processes = self._server.processes()
        self._ranks |= ranks(processes)
        if self._rank_gone_at is None and not all(rank.alive() for rank in self._ranks):
            self._rank_gone_at = now
        activity = look(processes, self._lines, self._gpu_memory())
        if self._watch is None:
            self._watch = StallWatch(now, activity)
        self._signs = StartSigns(
            still=self._watch.still(now, activity),
            rank_gone=None if self._rank_gone_at is None else now - self._rank_gone_at,
            room=room_in(self._server.log.parent),
            port_taken=None if self._port_taken_at is None else now - self._port_taken_at,
        )

    def _tell(self, now: float) -> None:
        stage, progress = self._progress.stage, self._progress.progress
        if stage != self._told_stage:
            self._log.append(ev.StageReached(trial=self._trial, stage=stage))
            self._told_stage, self._told, self._told_at = stage, None, now
        if progress is None or progress == self._told:
            return
        if now - self._told_at >= _TELL_EVERY or progress.done >= progress.total:
            self._log.append(
                ev.StartProgress(
                    trial=self._trial,
                    stage=stage,
                    done=progress.done,
                    total=progress.total,
                    share=self._progress.done,
                    draft=self._progress.draft,
                )
            )
            self._told, self._told_at = progress, now
