"""The whole sweep: Ray in one thread, the view and the signals in the main one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from sweeper.errors import MachineError
from sweeper.records.events import ServerStopped, SweepEnded
from sweeper.records.folder import SweepFolder
from sweeper.records.log import EventLog, read_events
from sweeper.records.sweep import Sweep, replay
from sweeper.report.files import write_reports
from sweeper.report.screen import Screen
from sweeper.search.director import Director
from sweeper.search.introduction import where_to_look
from sweeper.search.overdue import overdue
from sweeper.search.prepare import Prepared
from sweeper.search.ray_run import fit, ray_cluster
from sweeper.search.study import SweepStudy
from sweeper.servers.ending import end_left_behind

INTERRUPTED = "interrupted"
# What stops the sweep. SIGHUP is a closed terminal: servers must not stay behind it either.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A request to stop, made by a signal. The second one means: at once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self.count = 0
        self.at_once = False
        """Raise where the program stands: while Ray starts, nobody looks at the request."""

    def __call__(self, *_: object) -> None:
        self.count += 1
        if self.at_once:
            self.at_once = False
            raise KeyboardInterrupt
        # Workers are other processes: a file reaches them whatever they wait for. On a full
        # disk it cannot be made; the second signal ends them then.
        with contextlib.suppress(OSError):
            self._folder.stop_request.touch()

    @property
    def note(self) -> str:
        """What the user should know about it."""
        if not self.count:
            return ""
        return "stopping: the running server is being ended; Ctrl-C again ends everything at once"


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended.

    Args:
        sweep: replayed from its log. What ended early is there too.
        ray_is_gone: Ray was ended from outside. The process must then leave by
            ``os._exit``: Ray's own exit would wait a minute and abort.
        problem: what could not be written at the end, as on a full disk.
    """

    sweep: Sweep
    ray_is_gone: bool
    problem: str = ""


def run(prepared: Prepared, screen: Screen) -> Outcome:
    """Run the sweep to its end and write its summary.

    Raises:
        MachineError: Ray does not start, or broke down.
    """
    folder = prepared.plan.folder
    log = EventLog(folder.log)
    log.append(prepared.started)
    stop = Stop(folder)
    study = SweepStudy(prepared.plan.space, prepared.plan.device, folder.study)
    director = Director(
        prepared.plan.space,
        study,
        log,
        stop_requested=folder.stop_request.exists,
        worker_died=lambda trial: _end_leftovers(folder, log, only=trial),
    )
    failed: list[BaseException] = []
    gone = False
    with _signals(stop), screen:
        try:
            stop.at_once = True
            with ray_cluster(prepared) as ray, _signals(stop):  # Ray put its own there
                stop.at_once = False
                screen.say(where_to_look(ray.dashboard))
                trials = threading.Thread(target=_collect, args=(prepared, director, failed))
                trials.daemon = True
                trials.start()
                while trials.is_alive() and stop.count < 2 and not gone:
                    screen.refresh(stop.note)
                    _end_silent_workers(screen.sweep, prepared)
                    trials.join(timeout=0.25)
                    gone = not ray.alive()
                if stop.count or gone:
                    # The same signal may be ending Ray right now: no time to ask it anything.
                    ray.end_by_force()
        except (MachineError, KeyboardInterrupt) as error:
            # A signal also reaches what Ray starts: it is no fault of Ray's then.
            if not stop.count:
                failed.append(error)
                raise
        finally:
            director.end_all()
            _end_leftovers(folder, log)
            if gone and not stop.count:
                failed.append(RuntimeError("its processes were ended by somebody else"))
            ended = SweepEnded(reason=_reason(stop, failed, director))
            sweep, problem = _write_end(folder, log, ended)
            folder.stop_request.unlink(missing_ok=True)
    if failed and not gone and not stop.count:
        raise MachineError(
            f"Ray Tune broke down: {type(failed[0]).__name__}: {failed[0]}",
            where=str(folder.path),
            advice="What was measured is kept. Ray's own logs are in /tmp/ray/session_latest/logs.",
        )
    return Outcome(sweep, ray_is_gone=gone or stop.count > 0, problem=problem)


def what_next(sweep: Sweep, folder: SweepFolder) -> list[str]:
    """What the user can do now."""
    try:
        path = folder.path.relative_to(Path.cwd())
    except ValueError:
        path = folder.path
    lines = [
        f"how it was measured, and on what: {path}/summary.md",
        f"again from the log:  python -m sweeper report {path}",
    ]
    if sweep.best is not None:
        lines.append(f"as a systemd unit:   python -m sweeper export {path} --format systemd")
    if sweep.ended and sweep.ended.reason == INTERRUPTED:
        lines.insert(0, "interrupted; everything that was measured is kept")
        lines.append(
            "to measure on:       run the same command again; it makes a folder of its own"
        )
    return lines


def _write_end(folder: SweepFolder, log: EventLog, ended: SweepEnded) -> tuple[Sweep, str]:
    """The last event and the reports; on a full disk the state all the same, and the problem."""
    problem = ""
    try:
        log.append(ended)
        return write_reports(folder), problem
    except OSError as error:
        problem = str(error)
    except MachineError as error:
        problem = f"{error.where}: {error.what}"
    sweep = replay(read_events(folder.log))
    sweep.apply(ended)
    return sweep, problem


def _end_leftovers(folder: SweepFolder, log: EventLog, only: int | None = None) -> None:
    """End servers whose workers were killed before they could; each has a watcher as well.

    Args:
        only: the trial to look at; None is for all of them.
    """
    for trial in replay(read_events(folder.log)).trials.values():
        if trial.launched and trial.stop_seconds is None and only in (None, trial.number):
            stopped = end_left_behind(trial.launched.tag)
            log.append(
                ServerStopped(
                    trial=trial.number,
                    stop_seconds=stopped.seconds,
                    exit_status=None,
                    leftovers=stopped.killed,
                    problems=list(stopped.problems),
                )
            )


def _end_silent_workers(sweep: Sweep, prepared: Prepared) -> None:
    """Kill workers that are silent for longer than anything may take; Ray then ends their trial."""
    for trial in overdue(sweep, prepared.plan.space, datetime.now(UTC)):
        if trial.launched and trial.launched.worker:
            with contextlib.suppress(psutil.Error):
                worker = psutil.Process(trial.launched.worker)
                # Only what is below us: the number may have been given to another by now.
                if psutil.Process() in worker.parents():
                    worker.kill()


def _collect(prepared: Prepared, director: Director, failed: list[BaseException]) -> None:
    try:
        fit(prepared, director)
    except BaseException as error:
        failed.append(error)


def _reason(stop: Stop, failed: list[BaseException], director: Director) -> str:
    if stop.count:
        return INTERRUPTED
    return f"Ray Tune broke down: {failed[0]}" if failed else director.reason


@contextmanager
def _signals(handler: Callable[..., None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
