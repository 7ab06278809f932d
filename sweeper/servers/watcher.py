"""Ends a server whose owner died, whatever killed the owner.

Runs as ``python -m sweeper.servers.watcher TAG`` in a session of its own. Its
standard input is a pipe that the owner holds: the first line is the server's
session, and the end of the file is the owner's end, orderly or not. It carries
no tag itself, so it is never taken for a part of the server.
"""

from __future__ import annotations

import os
import signal
import sys

from sweeper.servers import tagged


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
    tag = sys.argv[1]
    first = sys.stdin.readline().strip()
    session = int(first) if first else None
    sys.stdin.read()
    tagged.end(tag, session, grace=1.0)


if __name__ == "__main__":
    main()
