"""One server process: started in a session of its own, ended with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sweeper.servers import tagged


@dataclass
class ServerProcess:
    """A running server and the watcher that ends it when we die.

    Make one with :func:`launch`, and hold it: the watcher ends the server of an
    object that is gone, as it does when its whole process is.
    """

    popen: subprocess.Popen[bytes]
    tag: str
    log: Path
    _watched: IO[bytes]

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self.popen.poll()

    def stop(self, *, grace: float = 10.0) -> int:
        """End the server and everything that it started. Safe to call twice.

        Args:
            grace: seconds between TERM and KILL.

        Returns:
            how many processes had to be killed.
        """
        killed = tagged.end(self.tag, self.popen.pid, grace=grace)
        self.popen.wait()
        self._watched.close()
        return killed

    def tail(self, lines: int = 30) -> list[str]:
        """The last lines of its log."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - 65536))
            return stream.read().decode(errors="replace").splitlines()[-lines:]


def launch(command: Sequence[str], env: Mapping[str, str], *, tag: str, log: Path) -> ServerProcess:
    """Start ``command`` with exactly ``env`` and the tag; both streams go to ``log``.

    The watcher is started first, so that there is no moment in which a killed
    worker would leave the server behind.
    """
    watched = _watch(tag)
    try:
        with log.open("ab") as stream:
            popen = subprocess.Popen(
                list(command),
                env={**env, tagged.TAG: tag},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError:
        watched.close()
        raise
    os.write(watched.fileno(), f"{popen.pid}\n".encode())
    return ServerProcess(popen, tag, log, watched)


def _watch(tag: str) -> IO[bytes]:
    """Start the watcher; it acts when the pipe that is returned is closed, by us or by our end."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "sweeper.servers.watcher", tag],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    watcher.wait()  # it has left our family now, and goes on by itself
    assert watcher.stdin is not None
    return watcher.stdin
