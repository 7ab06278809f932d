"""The launcher of the emulated engine: it starts the schedulers, waits for them, serves, and ends.

Seen from outside it does what SGLang 0.5.23's does, with the same words, the
same exit status, and the same children left behind.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from sweeper.engines.emulated import ranks, thief
from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.fault_kinds import EXIT_STATUS, Fault, Stage
from sweeper.engines.emulated.log import Log
from sweeper.engines.emulated.ranks import Part, Rank
from sweeper.engines.emulated.settings import Settings
from sweeper.engines.emulated.start_script import Script, rank_tags

POLL = 5.0
"""Seconds between two looks of SGLang's launcher at its starting schedulers, and at a drain."""
_LEAST_WAIT = 0.1


@dataclass
class Launcher:
    """One start and one life of a server.

    Args:
        settings: what the server was told.
        fault: what goes wrong.
        script: of the start.
        log: of the launcher itself.
    """

    settings: Settings
    fault: Fault
    script: Script
    log: Log
    schedulers: list[Rank] = field(default_factory=list)
    detokenizer: Rank | None = None
    serving: bool = False
    _liar: int = 0

    @property
    def clock(self) -> Clock:
        """The time in the log."""
        return self.log.clock

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self.settings.args["port"])

    def start(self) -> socket.socket | None:
        """From the launch to a bound port. Does not return where the start fails.

        Returns:
            the socket, not yet listening; None when the port is another's.
        """
        # SGLang has no handler before it serves: these end it at once and leave its children.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        ignores = self.fault.name == "ignores_term"
        signal.signal(signal.SIGTERM, signal.SIG_IGN if ignores else signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, self._on_quit)
        if self.fault.how == "port_stolen":
            thief.steal(self.port, thief.stranger())
        if self.fault.name == "health_lies":
            self._liar = thief.steal(self.port, thief.liar())
        for line in self.script.opening:
            self._fail_before(line.at)
            self.clock.sleep_until(line.at)
            ranks.write(self.log, line)
        # A rank that fails at once must find its brothers in our list.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
        self._fork()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
        self._import_the_rest()
        self._wait_for_schedulers()
        self.clock.sleep_until(self._moment("http", 0.5))
        return self._bind()

    # The start

    def _moment(self, stage: Stage, share: float) -> float:
        return self.script.moment(stage, share)

    def _fail_before(self, at: float) -> None:
        """Fail as the launcher, if that is due before a moment of the start."""
        if self.fault.how not in ("refuses_flags", "launcher_raises", "hangs", "exits"):
            return
        if self.fault.how == "hangs" and self.fault.stage != "arguments":
            return
        moment = self._moment(self.fault.stage, self.fault.share)
        if moment > at:
            return
        self.clock.sleep_until(moment)
        if self.fault.how == "hangs":
            ranks.hang()
        if self.fault.text:
            self.log.raw(self.fault.text)
        self.end(EXIT_STATUS[self.fault.how])

    def _fork(self) -> None:
        args = self.settings.args
        linked_at: float | None = self._moment("distributed", 0.0)
        if self.fault.name == "orphaned_scheduler":
            linked_at = None
        if self.fault.name == "leaked_children":
            ranks.start_leaked()
            ranks.start_leaked()
        tags = rank_tags(args)
        in_scheduler = ("scheduler_raises", "scheduler_aborts", "rank_killed", "hangs")
        starts = self.fault.stage in ("distributed", "weights", "memory_pool", "graph_capture")
        for rank, (tag, lines) in enumerate(zip(tags, self.script.ranks, strict=True)):
            # All ranks stand still when one does: they wait for it in a collective.
            mine = self.fault.how == "hangs" or rank == min(self.fault.rank, len(tags) - 1)
            fails = starts and mine and self.fault.how in in_scheduler
            part = Part(
                rank=rank,
                title=f"sglang::scheduler{tag.replace(' ', '_')}",
                lines=lines,
                linked_at=linked_at,
                fault=self.fault if fails else None,
                fails_at=self._moment(self.fault.stage, self.fault.share) if fails else 0.0,
                port=self.port,
            )
            self.schedulers.append(ranks.start_scheduler(part, self.log.tagged(tag)))
        self.detokenizer = ranks.start_detokenizer(linked_at, self.clock)

    def _import_the_rest(self) -> None:
        """What serving needs, while the schedulers load: it takes half a second."""
        from importlib import import_module

        for name in ("asyncio", "aiohttp.web", "sweeper.engines.emulated.http"):
            import_module(name)

    def _wait_for_schedulers(self) -> None:
        """As SGLang: in the order of the ranks, and every five seconds a look at all of them."""
        for rank in self.schedulers:
            while True:
                self._fail_before(self.clock.now())
                # A look every few milliseconds would be movement, where a hang has none.
                wait = max(_LEAST_WAIT, self.clock.wait(POLL))
                if self.fault.how == "exits":
                    due = self._moment(self.fault.stage, self.fault.share)
                    wait = min(wait, self.clock.until(due) + 0.001)
                if select.select([rank.answers], [], [], wait)[0]:
                    if os.read(rank.answers, len(ranks.READY)):
                        break
                    self._died(rank)
                for other in self.schedulers:
                    if other.poll() is not None:
                        self._died(other)

    def _died(self, rank: Rank) -> NoReturn:
        deadline = time.monotonic() + 5
        while rank.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        number = self.schedulers.index(rank)
        self.log.raw(
            "Traceback (most recent call last):\n"
            '  File "/opt/sglang/srt/entrypoints/engine.py", line 2046, in _wait_for_scheduler_ready\n'
            "    raise _scheduler_died_error(j, scheduler_procs[j])\n"
            f"RuntimeError: Rank {number} scheduler died during initialization "
            f"(exit code: {rank.exit_status}). If exit code is -9 (SIGKILL), a common cause is "
            "the OS OOM killer. Run `dmesg -T | grep -i oom` to check.\n"
        )
        self.end(1)

    def _bind(self) -> socket.socket | None:
        if self._liar:
            os.kill(self._liar, signal.SIGKILL)
            os.waitpid(self._liar, 0)
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((str(self.settings.args["host"]), self.port))
            bound.listen(2048)
        except OSError:
            bound.close()
            return None
        return bound

    # The end

    def end(self, status: int) -> NoReturn:
        """End with a status, and end the children."""
        self._kill_children()
        sys.stdout.flush()
        os._exit(status)

    def die(self, number: int) -> NoReturn:
        """End by a signal. The children end with us, where the death link is set."""
        ranks.no_core_file()
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        ranks.hang()

    def end_by(self, number: int) -> NoReturn:
        """End the children, then ourselves by a signal."""
        self._kill_children()
        self.die(number)

    def kill_tree(self) -> NoReturn:
        """End all children and ourselves by SIGKILL, as SGLang does after any failure of theirs."""
        me = os.getpid()
        self.log.info(f"kill_process_tree called: parent_pid={me}, include_parent=True, pid={me}")
        self.end_by(signal.SIGKILL)

    def _kill_children(self) -> None:
        children = [*self.schedulers, *([self.detokenizer] if self.detokenizer else [])]
        for child in children:
            child.kill()
        for child in children:
            while child.poll() is None:
                time.sleep(0.001)

    def _on_quit(self, number: int, frame: FrameType | None) -> None:
        if not self.serving:
            self.log.error(
                "Received sigquit from a child process. It usually means the child failed."
            )
            self.kill_tree()
        self.log.error(
            f"SIGQUIT received. signum={number}, frame={frame!r}. "
            "It usually means one child failed."
        )
        self.log.info("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(self.clock.wait(POLL))
        if all(rank.poll() is not None for rank in self.schedulers):
            self.log.error("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.kill_tree()
