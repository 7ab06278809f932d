"""Ports that are held from the moment they are looked for until the trial ends.

Between looking for a free port and a server's use of it lie minutes of loading.
So a port is held meanwhile by two things:

- a lock file for each block of ports, which keeps other sweeps of this user
  away, and which the kernel unlocks when its owner dies;
- a socket for each port, bound but not listening. It is bound without
  SO_REUSEADDR, which fails where anybody has the port, and gets SO_REUSEADDR
  after that. Linux then lets a socket that has it too bind and listen on the
  port, which the sockets of SGLang (uvicorn), PyTorch (TCPStore) and ZeroMQ do,
  while one without is refused, and the kernel does not choose the port for an
  outgoing connection.

A block that was used is the last to be used again, and in a block the ports of
connections that still wait for their end (TIME_WAIT) are passed over. SGLang was
seen to stop answering on a port that was used again at once
(https://github.com/sgl-project/sglang/issues/22779).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from sweeper.errors import MachineError
from sweeper.servers.scratch import is_ours

HOST = "127.0.0.1"

BLOCK = 256
"""Ports in a block: enough for those that SGLang derives from its own port."""
DP_ATTENTION = range(233, 240)
"""SGLang with data-parallel attention also uses its own port plus these
(``ZMQ_TCP_PORT_DELTA`` in server_args.py, and the six ports after it)."""
PREFERRED = range(20000, 30000)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_DEFAULT = range(32768, 61000)
_UNPRIVILEGED = 1024


@dataclass
class PortBlock:
    """Ports of one trial; close it when the server is gone.

    Args:
        ports: as many as were asked for, in a row.
        derived: further ones that the server derives from the first.
    """

    ports: tuple[int, ...]
    derived: tuple[int, ...] = ()
    _held: list[socket.socket] = field(default_factory=list, repr=False)
    _lock: int | None = field(default=None, repr=False)

    def close(self) -> None:
        """Give the ports back. Safe to call again."""
        for held in self._held:
            held.close()
        self._held.clear()
        if self._lock is not None:
            os.utime(self._lock)  # the block was in use until now
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> PortBlock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def reserve(
    count: int,
    *,
    derived: Collection[int] = (),
    folder: Path | None = None,
    bases: Sequence[int] | None = None,
) -> PortBlock:
    """Hold ports that nobody uses. A dead owner's are free again by themselves.

    Args:
        count: ports in a row.
        derived: distances from the first port of others that the server will use, as
            :data:`DP_ATTENTION`.
        folder: of the lock files; by default one of this user's in the temporary folder.
        bases: first ports of the blocks to choose from.

    Raises:
        ValueError: a block has not that many ports.
        MachineError: all blocks are in use.
    """
    span = max(count, 1 + max(derived, default=0))
    if count < 1 or span > BLOCK:
        raise ValueError(f"a block has {BLOCK} ports, not {span}")
    folder = lock_folder() if folder is None else folder
    bases = block_bases() if bases is None else bases
    for base in sorted(bases, key=lambda base: (_last_used(_lock_file(folder, base)), base)):
        lock = _take(_lock_file(folder, base))
        if lock is None:
            continue
        for first in range(base, base + BLOCK - span + 1, count):
            ports = tuple(range(first, first + count))
            others = tuple(first + distance for distance in derived)
            held = _hold((*ports, *others))
            if held is not None:
                return PortBlock(ports, others, held, lock)
        os.close(lock)
    raise MachineError(
        f"no {count} ports in a row are free",
        where=f"{len(bases)} blocks of {BLOCK} ports from {min(bases)} on",
        advice="See who has them with: ss -ltnp",
    )


def port_is_free(port: int) -> bool:
    """Whether a server can listen on it.

    Connections that wait for their end (TIME_WAIT) and our own hold do not count.
    """
    try:
        _bound(port, reuse=True).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Different free ports on the loopback address, not held; see :func:`reserve`."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind((HOST, 0))
            found.append(int(probe.getsockname()[1]))
        return found


def ephemeral_range(path: Path = _EPHEMERAL) -> range:
    """The ports that the kernel gives to outgoing connections."""
    try:
        first, last = map(int, path.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return _EPHEMERAL_DEFAULT
    return range(first, last + 1)


def block_bases(ephemeral: range | None = None) -> list[int]:
    """First ports of the blocks, none of which the kernel gives to connections.

    Where it leaves nothing of 20000 to 29999, any other ports; where it leaves
    nothing at all, those again, since they are held in any case.
    """
    ephemeral = ephemeral_range() if ephemeral is None else ephemeral
    for ports in (PREFERRED, range(_UNPRIVILEGED, 65536)):
        pieces = (
            range(ports.start, min(ports.stop, ephemeral.start)),
            range(max(ports.start, ephemeral.stop), ports.stop),
        )
        bases = [b for piece in pieces for b in range(piece.start, piece.stop - BLOCK + 1, BLOCK)]
        if bases:
            return bases
    return list(range(PREFERRED.start, PREFERRED.stop - BLOCK + 1, BLOCK))


def lock_folder(base: Path | None = None) -> Path:
    """Where this user's lock files lie.

    Raises:
        MachineError: something of another user has its name.
    """
    base = Path(tempfile.gettempdir()) if base is None else base
    folder = base / f"sweeper-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_ours(folder):
        raise MachineError("the folder of the port locks is not ours", where=str(folder))
    return folder


def blocks_in_use(folder: Path) -> list[int]:
    """First ports of the blocks that somebody holds now."""
    found = []
    for path in sorted(folder.glob("block-*")):
        lock = _take(path)
        if lock is None:
            found.append(int(path.name.removeprefix("block-")))
        else:
            os.close(lock)
    return found


def _lock_file(folder: Path, base: int) -> Path:
    return folder / f"block-{base}"


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # never


def _take(path: Path) -> int | None:
    """Lock the file; None when somebody has it. The file is never removed, so the lock counts."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _hold(ports: Collection[int]) -> list[socket.socket] | None:
    """A bound socket for each port; None when one is not free."""
    held: list[socket.socket] = []
    try:
        for port in ports:
            held.append(_bound(port, reuse=False))
            # Only now: with it from the start, two holders would both succeed.
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        for sock in held:
            sock.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    return held


def _bound(port: int, *, reuse: bool) -> socket.socket:
    """A socket that is bound to the port on every address, both families, and hears nothing."""
    for family, address in _families():
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if reuse:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((address, port))
        except OSError as error:
            sock.close()
            if family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
                continue  # the machine has no IPv6
            raise
        return sock
    raise AssertionError("unreachable: the last family raises")


def _families() -> Iterator[tuple[socket.AddressFamily, str]]:
    if socket.has_dualstack_ipv6():
        yield socket.AF_INET6, "::"
    yield socket.AF_INET, "0.0.0.0"  # noqa: S104 - bound, never listening
