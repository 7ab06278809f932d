"""Ports are held without a race, and given to servers that set SO_REUSEADDR."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.errors import MachineError
from sweeper.servers import ports
from sweeper.servers.ports import BLOCK, DP_ATTENTION, PortBlock, port_is_free, reserve

UVICORN = """
import sys, uvicorn
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("listens", flush=True)
config = uvicorn.Config(app, host=sys.argv[1], port=int(sys.argv[2]), lifespan="off", log_level="error")
Server(config).run()
"""
TCPSTORE = """
import sys
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), 1, True)
store.set("a", "b")
print("listens" if store.get("a") == b"b" else "no", flush=True)
import time
time.sleep(600)
"""
ZMQ = """
import sys, zmq
held = zmq.Context().socket(zmq.PULL)
held.bind(f"tcp://{sys.argv[1]}:{sys.argv[2]}")
print("listens", flush=True)
import time
time.sleep(600)
"""
OWNER = """
import sys, time
from pathlib import Path
from sweeper.servers.ports import reserve
block = reserve(2, folder=Path(sys.argv[1]), bases=[int(sys.argv[2])])
print(block.ports[0], flush=True)
time.sleep(600)
"""


Bases = tuple[int, ...]


@pytest.fixture
def bases() -> Bases:
    """Blocks below those of real sweeps. Another test may have left connections in some."""
    free = [base for base in range(10000, 20000 - BLOCK, BLOCK) if _unused(base)]
    return tuple(sorted(random.sample(free, 4)))


def _unused(base: int) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for port in (*range(base, base + 8), *range(base + 233, base + 240)):
                stack.enter_context(socket.socket()).bind(("", port))
        except OSError:
            return False
    return True


@pytest.fixture
def block(tmp_path: Path, bases: Bases) -> Iterator[PortBlock]:
    with reserve(2, folder=tmp_path, bases=bases) as found:
        yield found


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("program", [UVICORN, TCPSTORE, ZMQ], ids=["uvicorn", "TCPStore", "zmq"])
def test_a_server_listens_on_a_port_that_is_held(block: PortBlock, program: str, host: str) -> None:
    port = block.ports[0]
    assert port_is_free(port)
    server = subprocess.Popen(
        [sys.executable, "-c", program, host, str(port)], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"listens\n"
        assert not port_is_free(port)
        socket.create_connection(("127.0.0.1", port), 5).close()
    finally:
        server.kill()
        server.wait()
    assert port_is_free(port)  # a connection in TIME_WAIT does not count


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_stranger_is_refused(block: PortBlock, host: str) -> None:
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind((host, block.ports[0]))


@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")],
)
def test_a_port_of_somebody_else_is_passed_over(
    tmp_path: Path, bases: Bases, family: int, host: str, reuse: int
) -> None:
    with socket.socket(family) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        if family == socket.AF_INET6:
            stranger.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        stranger.bind((host, bases[0] + 1))
        stranger.listen()
        assert not port_is_free(bases[0] + 1)
        with reserve(2, folder=tmp_path, bases=bases) as block:
            assert block.ports == (bases[0] + 2, bases[0] + 3)


def test_two_users_do_not_get_the_same_port(tmp_path: Path, bases: Bases) -> None:
    """Their lock files lie in different folders; only the sockets keep them apart."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        reserve(2, folder=tmp_path / "a", bases=bases[:1]) as one,
        reserve(2, folder=tmp_path / "b", bases=bases[:1]) as two,
    ):
        assert not set(one.ports) & set(two.ports)


def test_many_at_once_get_different_blocks(tmp_path: Path, bases: Bases) -> None:
    found: list[PortBlock] = []
    threads = [
        threading.Thread(target=lambda: found.append(reserve(2, folder=tmp_path, bases=bases)))
        for _ in bases
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert {block.ports[0] for block in found} == set(bases)
        assert ports.blocks_in_use(tmp_path) == list(bases)
        with pytest.raises(MachineError, match="no 2 ports in a row"):
            reserve(2, folder=tmp_path, bases=bases)
    finally:
        for block in found:
            block.close()
    assert ports.blocks_in_use(tmp_path) == []


def test_a_block_is_the_last_to_be_used_again(tmp_path: Path, bases: Bases) -> None:
    seen = []
    for second in range(len(bases) + 1):
        with reserve(2, folder=tmp_path, bases=bases) as block:
            seen.append(block.ports[0])
        os.utime(tmp_path / f"block-{seen[-1]}", (second + 1, second + 1))
    assert seen == [*bases, bases[0]]


def test_a_dead_owner_frees_its_block(tmp_path: Path, bases: Bases) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), str(bases[0])], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == f"{bases[0]}\n".encode()
    with pytest.raises(MachineError):
        reserve(2, folder=tmp_path, bases=bases[:1])
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with reserve(2, folder=tmp_path, bases=bases[:1]) as block:
        assert block.ports[0] == bases[0]


def test_ports_that_a_server_derives_are_held_too(tmp_path: Path, bases: Bases) -> None:
    with reserve(2, derived=DP_ATTENTION, folder=tmp_path, bases=bases) as block:
        assert block.derived == tuple(range(bases[0] + 233, bases[0] + 240))
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", bases[0] + 238))


@pytest.mark.parametrize(("count", "derived"), [(0, ()), (BLOCK + 1, ()), (1, (BLOCK,))])
def test_more_than_a_block_has(
    tmp_path: Path, bases: Bases, count: int, derived: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="a block has"):
        reserve(count, derived=derived, folder=tmp_path, bases=bases)


def test_closing_twice(block: PortBlock) -> None:
    block.close()
    block.close()
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", block.ports[0]))


@pytest.mark.parametrize(
    ("ephemeral", "first", "outside"),
    [
        (range(32768, 61000), 20000, True),
        (range(15000, 25000), 25000, True),
        (range(22000, 65536), 20000, True),
        (range(15000, 65536), 1024, True),
        (range(1024, 65536), 20000, False),
    ],
)
def test_blocks_lie_outside_the_ports_of_the_kernel(
    ephemeral: range, first: int, outside: bool
) -> None:
    found = ports.block_bases(ephemeral)
    assert found[0] == first
    assert len(found) >= 7
    assert outside == all(p not in ephemeral for b in found for p in (b, b + BLOCK - 1))


def test_the_range_of_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "range"
    assert ports.ephemeral_range(file) == range(32768, 61000)
    file.write_text("1024\t4999\n")
    assert ports.ephemeral_range(file) == range(1024, 5000)


def test_the_lock_folder_must_be_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"sweeper-ports-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="not ours"):
        ports.lock_folder(tmp_path)


def test_the_defaults() -> None:
    with reserve(2) as block:
        assert block.ports[1] == block.ports[0] + 1
        assert block.ports[0] not in ports.ephemeral_range()
