"""Ports of this machine that nobody uses."""

from __future__ import annotations

import contextlib
import socket

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Different free ports on the loopback address.

    They are free now; another program may take one before the server does. The
    server then fails to start, or its readiness check sees a stranger, so a lost
    race is a failed trial and never a wrong number.
    """
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind((HOST, 0))
            found.append(int(probe.getsockname()[1]))
        return found
