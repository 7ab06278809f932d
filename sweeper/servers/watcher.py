"""Ends a server whose owner died, whatever killed the owner.

Runs as ``python -m sweeper.servers.watcher TAG FOLDER`` in a session of its own;
FOLDER is the server's scratch folder. Its standard input is a pipe that the owner
holds: the first line is the server's first process, the line "done" says that the
owner ended it, and the end of the file is the owner's end. It carries no tag
itself, so it is never taken for a part of the server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sweeper.servers.ending import end_left_behind
from sweeper.servers.tagged import ProcessRef

DONE = "done"


def main() -> None:
    """Wait for the owner's end, then end what it left."""
    # Not the owner's child: when Ray ends a worker it kills the worker's children too,
    # and the server's own children would stay behind with nobody to end them.
    if os.fork():
        os._exit(0)
    os.setsid()
    # Ctrl-C in the terminal and a stop of the owner's group are not meant for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tag, folder = sys.argv[1:3]
    lines = sys.stdin.read().splitlines()  # asleep until the pipe is closed
    if DONE not in lines:
        end_left_behind(tag, folder=Path(folder), leader=leader_in(lines))


def leader_in(lines: Sequence[str]) -> ProcessRef | None:
    """The server's first process, "PID START"; None when the owner died before it was there."""
    for line in lines:
        words = line.split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            return ProcessRef(int(words[0]), int(words[1]))
    return None


if __name__ == "__main__":
    main()
