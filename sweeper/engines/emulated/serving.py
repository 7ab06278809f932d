"""The life of an emulated server from its bound port on: warm-up, ready, load, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.fault_kinds import told
from sweeper.engines.emulated.faults import find
from sweeper.engines.emulated.launcher import POLL, Launcher
from sweeper.engines.emulated.ranks import Rank
from sweeper.engines.emulated.start_script import rank_tags

if TYPE_CHECKING:
    from sweeper.engines.emulated.http import Server

_WATCH = 1.0
"""Seconds between two looks of SGLang at its running children."""
_COLLECTIVE = 600.0
"""Seconds after which PyTorch gives up a collective, without ``--dist-timeout``."""


_LAST_ANSWERS = 0.1
"""Seconds that the last answers get to leave, once nothing runs any more."""
_TRIES = 200


def run(launcher: Launcher) -> NoReturn:
    """Start, serve and end."""
    bound = launcher.start()
    asyncio.run(Service(launcher).live(bound))
    launcher.end(0)


class Service:
    """A launcher that serves."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._log = launcher.log
        self._first_rank = launcher.log.tagged(rank_tags(launcher.settings.args)[0])
        self._watching = True
        self._stopping = asyncio.Event()

    @property
    def _clock(self) -> Clock:
        return self._launcher.clock

    async def live(self, bound: socket.socket | None) -> None:
        """Serve until told to stop. Every other end is the end of the process."""
        self._launcher.serving = True
        self._log.uvicorn(f"Started server process [{os.getpid()}]")
        self._log.uvicorn("Waiting for application startup.")
        self._log.uvicorn("Application startup complete.")
        if bound is None:
            await self._port_in_use()
        loop = asyncio.get_running_loop()
        if self._launcher.fault.name != "ignores_term":
            loop.add_signal_handler(signal.SIGTERM, self._on_term)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=self._watch, daemon=True).start()
        server = self._http_server(bound)
        await server.start()
        self._log.uvicorn(f"Uvicorn running on {self._address} (Press CTRL+C to quit)")
        starting = asyncio.create_task(self._warm_up(server))
        await self._stopping.wait()
        starting.cancel()
        await self._drain(server)
        await server.close()

    @property
    def _address(self) -> str:
        args = self._launcher.settings.args
        return f"http://{args['host']}:{args['port']}"

    def _http_server(self, bound: socket.socket) -> Server:
        from sweeper.engines.emulated.http import Server

        return Server(
            self._launcher.settings,
            socket=bound,
            log=self._log.info,
            alive=self.alive,
            die=self.die,
            rank_log=self._first_rank.info,
            access=self._log.access,
        )

    # The start's last stages

    async def _until(self, virtual: float) -> None:
        await asyncio.sleep(self._clock.until(virtual))

    async def _port_in_use(self) -> NoReturn:
        """SGLang's warm-up talks to whoever has the port, and finds that all is well."""
        args = self._launcher.settings.args
        address = (args["host"], args["port"])
        self._log.uvicorn(
            f"[Errno 98] error while attempting to bind on address {address!r}: "
            "address already in use",
            "error",
        )
        self._log.uvicorn("Waiting for application shutdown.")
        self._log.uvicorn("Application shutdown complete.")
        await self._until(self._launcher.script.stages["ready"][0])
        self._say_ready()
        self._launcher.end(3)

    async def _warm_up(self, server: Server) -> None:
        fault, script = self._launcher.fault, self._launcher.script
        begin, end = script.stages["warm_up"]
        await self._until(begin + 0.2 * (end - begin))
        self._log.access("127.0.0.1:51326", "GET", "/model_info", 200)
        if fault.stage == "warm_up":
            await self._until(script.moment("warm_up", fault.share))
            if fault.how == "hangs":
                return
            text = told(fault.text, rank=0, pid=os.getpid(), port=self._launcher.port)
            self._log.error(f"Initialization failed. warmup error: {text}")
            self._launcher.kill_tree()
        await self._until(begin + 0.9 * (end - begin))
        self._first_rank.info(_WARM_UP_BATCH)
        await self._until(end)
        self._log.access("127.0.0.1:51334", "POST", "/generate", 200)
        self._log.access("127.0.0.1:51342", "POST", "/freeze_gc", 200)
        self._clock.run_in_real_time()
        if fault.stage == "ready" and fault.how == "scheduler_raises":
            self.die(fault.name)  # it says that it is ready all the same
        else:
            server.set_ready()
        self._say_ready()

    def _say_ready(self) -> None:
        self._log.info("The server is fired up and ready to roll!")

    # Failures while it serves

    def alive(self) -> bool:
        """Whether all schedulers run."""
        return all(rank.poll() is None for rank in self._launcher.schedulers)

    def die(self, reason: str) -> None:
        """Fail as the fault of that name does. Returns at once; the end comes as fast as SGLang's.

        Raises:
            ValueError: there is no fault of that name.
        """
        fault = find(reason)
        ranks = self._launcher.schedulers
        rank = ranks[min(fault.rank, len(ranks) - 1)]
        words = {"text": fault.text, "first": fault.first}
        if fault.how == "scheduler_raises":
            self._order(rank, "raise", 0.0, **words)
        elif fault.how == "scheduler_aborts":
            timeout = self._launcher.settings.args.get("dist_timeout") or _COLLECTIVE
            self._order(rank, "abort", float(timeout), **words)
        elif fault.how == "watchdog":
            timeout = float(self._launcher.settings.args.get("watchdog_timeout") or 300.0)
            text = (
                f"Scheduler watchdog timeout (self.watchdog_timeout={timeout:g}, self.soft=False)"
            )
            waits = self._clock.wait(POLL)
            self._order(rank, "watchdog", timeout, text=text, first="", waits=waits)
        elif fault.how == "rank_killed":
            rank.kill()
        elif fault.how == "rank_dies_unseen":
            self._watching = False
            rank.kill()
        elif fault.how == "dies":
            self._launcher.die(signal.SIGSEGV)
        elif fault.how == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)

    def _order(self, rank: Rank, what: str, after: float, **more: object) -> None:
        def send() -> None:
            rank.order(what, clock=asdict(self._clock), **more)

        asyncio.get_running_loop().call_later(self._clock.wait(after), send)

    def _watch(self) -> None:
        """As SGLang 0.5.17 and later look after their children, in a thread."""
        launcher = self._launcher
        children = [*launcher.schedulers, *([launcher.detokenizer] if launcher.detokenizer else [])]
        while True:
            time.sleep(max(0.02, self._clock.wait(_WATCH)))
            for child in children:
                if not self._watching:
                    return
                if child.poll():
                    self._log.error(
                        f"Subprocess {child.name} (pid={child.pid}) crashed with exit code "
                        f"{child.exit_status}. Triggering SIGQUIT for cleanup..."
                    )
                    os.kill(os.getpid(), signal.SIGQUIT)
                    return

    # The stop

    def _on_term(self) -> None:
        self._log.warning(
            "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
        )
        self._stopping.set()

    def _on_interrupt(self) -> None:
        self._watching = False
        self._log.uvicorn("Shutting down")
        self._launcher.end_by(signal.SIGINT)

    async def _drain(self, server: Server) -> None:
        await asyncio.sleep(self._clock.wait(POLL / 2))  # SGLang looks every five seconds
        while True:
            left = server.requests_in_flight
            self._log.info(
                f"Gracefully exiting... Remaining number of requests {left}. "
                f"Remaining requests remaining_rids={['...'] * left}."
            )
            if not left:
                break
            await asyncio.sleep(self._clock.wait(POLL))
        await asyncio.sleep(_LAST_ANSWERS)
        self._watching = False
        for rank in self._launcher.schedulers:
            rank.order("end")
        for _ in range(_TRIES):  # its children are no coroutines: there is nothing to await
            if not self._any_runs():
                break
            await asyncio.sleep(0.005)
        me = os.getpid()
        self._log.info(f"kill_process_tree called: parent_pid={me}, include_parent=True, pid={me}")

    def _any_runs(self) -> bool:
        return any(rank.poll() is None for rank in self._launcher.schedulers)


_WARM_UP_BATCH = (
    "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
    "input throughput (token/s): 2.14"
)
