"""One server process: started in a session of its own, ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sweeper.servers import scratch, shared_memory, tagged, watcher
from sweeper.servers.ending import GRACE, Stopped, end_processes, remove_files, still_there
from sweeper.servers.family import Family
from sweeper.servers.ports import PortBlock, port_is_free

NOTE_EVERY = 10.0
"""Seconds between two looks at shared memory; reading a map holds up its process a little."""
PORT_LIMIT = 5.0
"""Seconds to wait for the ports of a server that is gone."""
MEMORY_LIMIT = 10.0
"""Seconds to wait for the GPU memory of a server that is gone."""
MEMORY_TOLERANCE = 256 << 20
"""Bytes by which the memory in use may have grown: the driver keeps some for itself."""


@dataclass
class ServerProcess:
    """A running server and the watcher that ends it when we die.

    Make one with :func:`launch`, and hold it: the watcher ends the server of an
    object that is gone, as it does when its whole process is. Call
    :meth:`keep_watch` every few seconds while it runs.
    """

    popen: subprocess.Popen[bytes]
    tag: str
    log: Path
    scratch: Path
    family: Family
    _watched: IO[bytes]
    _ports: PortBlock | None = None
    _gpu_memory: Callable[[], tuple[int, ...]] = tuple
    _memory_before: tuple[int, ...] = ()
    _shared_before: frozenset[shared_memory.Identity] = frozenset()
    _shared: set[str] = field(default_factory=set)
    _noted_at: float | None = None
    _stopped: Stopped | None = None

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self.popen.poll()

    def gpu_memory(self) -> tuple[int, ...]:
        """Bytes in use on each of its GPUs now; empty where nobody can tell."""
        return self._gpu_memory()

    def tail(self, lines: int = 30) -> list[str]:
        """The last lines of its log."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - 65536))
            return stream.read().decode(errors="replace").splitlines()[-lines:]

    def processes(self) -> list[tagged.ProcessRef]:
        """Its living processes; they are remembered when their signs are gone."""
        return self.family.living()

    def keep_watch(self) -> None:
        """See its processes and shared memory, write them down, and have it watched.

        What is written down is what the watcher, or a later ``sweeper doctor``,
        knows beside the tag. May be called often: the look itself, which costs some
        milliseconds a process, is taken every :data:`NOTE_EVERY` seconds.
        """
        if self._stopped is not None:
            return
        self.ensure_watcher()
        now = time.monotonic()
        if self._noted_at is None or now - self._noted_at >= NOTE_EVERY:
            self._noted_at = now
            self.note_shared_memory()

    def note_shared_memory(self) -> set[str]:
        """Look which shared memory its processes use, and write down all that was seen."""
        processes = self.processes()
        self._shared |= shared_memory.shared_memory_of(processes)
        # A full disk must not end a trial for the sake of a note.
        with contextlib.suppress(OSError):
            scratch.note_seen(self.scratch, processes, self._shared)
        return set(self._shared)

    def watched(self) -> bool:
        """Whether its watcher is alive."""
        poll = select.poll()
        try:
            poll.register(self._watched.fileno(), 0)
        except ValueError:
            return False  # closed
        # A pipe without a reader reports an error, and only the watcher has the other end.
        return not poll.poll(0)

    def ensure_watcher(self) -> bool:
        """Start a new watcher if the old one is gone; whether that was so."""
        if self._stopped is not None or self.watched():
            return False
        self._watched.close()
        self._watched = _watch(self.tag, self.scratch)
        _tell_leader(self._watched, self.family.leader)
        return True

    def stop(self, *, grace: float = GRACE) -> Stopped:
        """End the server and everything that it started, and verify it. Safe to call twice.

        Takes the time that the server needs to drain and at most a second more,
        unless something is not as it should be.

        Args:
            grace: seconds between TERM and KILL.
        """
        if self._stopped is not None and not self._stopped.left:
            return self._stopped
        begin = time.monotonic()
        shared = self.note_shared_memory()
        killed, left = end_processes(self.processes, grace=grace, leader=self.family.leader)
        problems = still_there(left)
        removed: list[str] = []
        status = self.popen.poll()
        if not left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.popen.wait(1.0)
            removed, more = remove_files(self.scratch, shared, self._shared_before)
            problems += more
        port_free = self._port_free(problems)
        memory_back = self._memory_back(problems)
        if not left:
            self._end_watcher()
            if self._ports is not None:
                self._ports.close()
        self._stopped = Stopped(
            seconds=time.monotonic() - begin,
            killed=killed,
            exit_status=status,
            left=tuple(ref.pid for ref in left),
            port_free=port_free,
            gpu_memory_back=memory_back,
            removed=tuple(removed),
            problems=tuple(problems),
        )
        return self._stopped

    def _port_free(self, problems: list[str]) -> bool | None:
        if self._ports is None:
            return None
        ports = (*self._ports.ports, *self._ports.derived)
        tagged.wait_until(lambda: all(map(port_is_free, ports)), PORT_LIMIT)
        used = [port for port in ports if not port_is_free(port)]
        problems += [f"port {port} is still in use" for port in used]
        return not used

    def _memory_back(self, problems: list[str]) -> bool | None:
        if not self._memory_before:
            return None

        def more() -> list[int]:
            now = self._gpu_memory()
            return [n - b for n, b in zip(now, self._memory_before, strict=False)]

        def back() -> bool:
            return all(grown <= MEMORY_TOLERANCE for grown in more())

        if tagged.wait_until(back, MEMORY_LIMIT, every=0.1):
            return True
        grown = ", ".join(f"{max(0, bytes_) / 2**30:.1f}" for bytes_ in more())
        problems.append(f"its GPUs hold more memory than before its start: {grown} GiB")
        return False

    def _end_watcher(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.write(self._watched.fileno(), f"{watcher.DONE}\n".encode())
        self._watched.close()


def launch(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    tag: str,
    log: Path,
    ports: PortBlock | None = None,
    gpu_memory: Callable[[], tuple[int, ...]] = tuple,
) -> ServerProcess:
    """Start ``command`` with ``env``, the tag and a scratch folder; both streams go to ``log``.

    The watcher is started first, so that there is no moment in which a killed
    worker would leave the server behind.

    Args:
        command: the program and its arguments.
        env: the whole environment; the tag and the variables of
            :func:`sweeper.servers.scratch.environment` are added.
        tag: unique to this server.
        log: appended to.
        ports: that the server will use; given back when it is stopped, and when
            it cannot be started.
        gpu_memory: bytes in use on each of its GPUs; empty where there are none or
            nobody can tell.

    Raises:
        OSError: the program cannot be run, or a file or folder cannot be made.
    """
    with contextlib.ExitStack() as undo:
        if ports is not None:
            undo.callback(ports.close)
        folder = scratch.create(tag)
        undo.callback(scratch.remove, folder)
        note = scratch.read(folder)
        before = note.shared_before if note else frozenset()
        memory = gpu_memory()
        watched = undo.enter_context(_watch(tag, folder))
        with log.open("ab") as stream:
            popen = subprocess.Popen(
                list(command),
                env={**env, **scratch.environment(folder, env), tagged.TAG: tag},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        undo.pop_all()
    # It is our child: until we ask for its exit status, its number is its own.
    entry = tagged.look_at(popen.pid)
    leader = entry.ref if entry is not None else None
    _tell_leader(watched, leader)
    if leader is not None:
        with contextlib.suppress(OSError):
            scratch.note_leader(folder, leader)
    family = Family(tag, leader)
    return ServerProcess(
        popen, tag, log, folder, family, watched, ports, gpu_memory, memory, before
    )


def _tell_leader(watched: IO[bytes], leader: tagged.ProcessRef | None) -> None:
    if leader is None:
        return
    # A watcher that was killed already is replaced at the next look.
    with contextlib.suppress(BrokenPipeError):
        os.write(watched.fileno(), f"{leader.pid} {leader.started}\n".encode())


def _watch(tag: str, folder: Path) -> IO[bytes]:
    """Start the watcher; it acts when the pipe that is returned is closed, by us or by our end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeper.servers.watcher", tag, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.wait()  # it has left our family now, and goes on by itself
    assert process.stdin is not None
    return process.stdin
