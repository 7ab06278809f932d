"""The schedulers and the detokenizer: child processes that start, wait, and fail as SGLang's do.

They are forked, so that eight of them are up in some milliseconds and share their
memory. A scheduler plays its own part of the start, on its own clock: when its
launcher is killed early it goes on, as SGLang's do, because the link that would
end it with its parent (``PR_SET_PDEATHSIG``) is set only after its imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.fault_kinds import Fault, told
from sweeper.engines.emulated.log import STDERR, STDOUT, Log, put
from sweeper.engines.emulated.start_script import Line

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
READY = b"ready\n"


@dataclass(frozen=True)
class Part:
    """What one scheduler does.

    Args:
        rank: its number.
        title: what a process list shows.
        lines: of its start.
        linked_at: virtual second from which it ends with its parent; None for never.
        fault: what it does wrong in the start, if anything.
        fails_at: virtual second of that.
        port: of the server.
    """

    rank: int
    title: str
    lines: Sequence[Line]
    linked_at: float | None
    fault: Fault | None = None
    fails_at: float = 0.0
    port: int = 0


@dataclass
class Rank:
    """A child as its parent sees it.

    Args:
        name: as SGLang calls it in its log.
        pid: of the process.
        answers: file descriptor on which it says that it is ready.
        orders: file descriptor on which it is told what to do.
        exit_status: None while it runs; negative is the signal that ended it.
    """

    name: str
    pid: int
    answers: int
    orders: int
    exit_status: int | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def poll(self) -> int | None:
        """Look whether it ended."""
        with self._lock:
            if self.exit_status is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:
                    # A signal handler came in between and has seen it end.
                    pid, status = self.pid, signal.SIGKILL
                if pid:
                    self.exit_status = os.waitstatus_to_exitcode(status)
            return self.exit_status

    def kill(self) -> None:
        """End it, if it runs. Our own child: its number cannot have been reused."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def order(self, what: str, **more: Any) -> None:
        """Tell a waiting scheduler to ``raise``, ``abort``, ``watchdog`` or ``end``."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.orders, json.dumps({"do": what, **more}).encode() + b"\n")


def start_scheduler(part: Part, log: Log) -> Rank:
    """Start one, which begins with its script at once."""
    answers, answer = os.pipe()
    orders, order = os.pipe()
    pid = _fork(lambda: _scheduler(part, log, answer, orders), close=(answers, order))
    os.close(answer)
    os.close(orders)
    return Rank(f"scheduler_{part.rank}", pid, answers, order)


def start_detokenizer(linked_at: float | None, clock: Clock) -> Rank:
    """Start the process that in SGLang turns tokens into text; here it only waits."""

    def body() -> NoReturn:
        _title("sglang::detokenizer")
        if linked_at is not None:
            clock.sleep_until(linked_at)
            _end_with_parent()
        hang()

    return Rank("detokenizer", _fork(body), -1, -1)


def start_leaked() -> int:
    """A process in a session of its own that ignores TERM and does not end with its parent."""

    def body() -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        hang()

    return _fork(body)


def _fork(body: Callable[[], None], close: Sequence[int] = ()) -> int:
    ignores = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    if pid := os.fork():
        return pid
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        if ignores:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for descriptor in close:
            os.close(descriptor)
        body()
    except BaseException:
        put(STDERR, traceback.format_exc())
    finally:
        os._exit(1)


def hang() -> NoReturn:
    """Wait without end, for signals only."""
    while True:
        signal.pause()


def _scheduler(part: Part, log: Log, answer: int, orders: int) -> NoReturn:
    parent = os.getppid()
    _title(part.title)
    linked = part.linked_at is None
    for line in part.lines:
        if part.fault is not None and part.fails_at <= line.at:
            break
        if part.linked_at is not None and not linked and part.linked_at <= line.at:
            log.clock.sleep_until(part.linked_at)
            _end_with_parent()
            linked = True
        log.clock.sleep_until(line.at)
        write(log, line)
    if part.fault is not None:
        log.clock.sleep_until(part.fails_at)
        _fail(part.fault, part, log, parent)
    try:
        os.write(answer, READY)
    except BrokenPipeError:
        # The launcher was killed before the death link. SGLang's scheduler ends so
        # when it reports; what then is left over is the detokenizer.
        if part.linked_at is None:
            hang()
        _print_exception(log, "BrokenPipeError: [Errno 32] Broken pipe\n")
        os._exit(1)
    _serve(part, log, orders, parent)


def _serve(part: Part, log: Log, orders: int, parent: int) -> NoReturn:
    """Do what the launcher says, line by line, and nothing else."""
    with os.fdopen(orders, encoding="utf-8") as stream:
        for line in stream:
            order = json.loads(line)
            log = log.at(Clock(**order["clock"])) if "clock" in order else log
            if order["do"] == "end":
                os._exit(0)
            fault = Fault("", "", "", "load", _HOW[order["do"]], order["text"], order["first"])
            _fail(fault, part, log, parent, waits=order.get("waits", 0.0))
    # The launcher is gone, and nothing links us to it: we stay, as SGLang's would.
    hang()


_HOW: dict[str, Any] = {
    "raise": "scheduler_raises",
    "abort": "scheduler_aborts",
    "watchdog": "watchdog",
}


def _fail(fault: Fault, part: Part, log: Log, parent: int, waits: float = 0.0) -> NoReturn:
    def filled(text: str) -> str:
        return told(text, rank=part.rank, pid=os.getpid(), port=part.port)

    if fault.how == "hangs":
        hang()
    if fault.how == "rank_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.first:
        log.raw(filled(fault.first))
    if fault.how == "scheduler_aborts":
        log.raw(filled(fault.text))
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        no_core_file()
        os.kill(os.getpid(), signal.SIGABRT)
    if fault.how == "watchdog":
        log.error(filled(fault.text))
        log.raw("\n")
        log.raw("\n", STDOUT)
        Clock.start(1.0).sleep_until(waits)
    else:
        _print_exception(log, filled(fault.text))
    if os.getppid() == parent:  # else it is init's child, which SGLang would signal
        os.kill(parent, signal.SIGQUIT)
    if fault.how == "watchdog":
        hang()
    os._exit(1)


def _print_exception(log: Log, text: str) -> None:
    log.error(f"Scheduler hit an exception: {text}")


def write(log: Log, line: Line) -> None:
    """Write a line of a script."""
    if line.kind == "raw":
        log.raw(line.text, STDERR)
    else:
        log.line(line.text, line.kind)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def no_core_file() -> None:
    """Let no signal write a core file: there is nothing in it to look for."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _title(title: str) -> None:
    """Rename the process. setproctitle writes over what /proc shows as its environment, as in SGLang."""
    try:
        from setproctitle import setproctitle
    except ImportError:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, title.encode())
    else:
        setproctitle(title)
