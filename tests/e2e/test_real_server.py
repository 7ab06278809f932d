"""The real SGLang on this machine's CPU: start, measure, stop, the ways to die, nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sweeper.engines.sglang.classify import (
    Classified,
    Evidence,
    classify,
    port_is_taken,
    read_lines,
)
from sweeper.engines.sglang.launch import launch as sglang_launch
from sweeper.engines.sglang.log_reader import LogReader
from sweeper.engines.sglang.ranks import ranks
from sweeper.engines.sglang.start_progress import StartProgress
from sweeper.load.client import run_level
from sweeper.load.metrics import level_metrics
from sweeper.models.resolver import resolve
from sweeper.servers import process, tagged
from sweeper.servers.ports import PortBlock, reserve
from sweeper.servers.readiness import StartError, wait_until_ready

pytestmark = pytest.mark.engine


def proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


class Server:
    """A server that was launched as a trial launches it."""

    def __init__(self, folder: Path, tensor_parallel: int, ports: PortBlock, **args: object):
        self.name = f"sweeper-{uuid.uuid4().hex[:8]}"
        self.url = f"http://127.0.0.1:{ports.ports[0]}"
        what = sglang_launch(
            python=Path(sys.executable),
            model=resolve("embedded-tiny", python=Path(sys.executable)).path,
            port=ports.ports[0],
            served_name=self.name,
            args={"random-seed": 1, "tensor-parallel-size": tensor_parallel, **args},
            env={"HF_HUB_OFFLINE": "1", "NCCL_PROTO": "LL"},
            inherited=os.environ,
            device="cpu",
        )
        log = folder / "server.log"
        self.process = process.launch(what.command, what.env, tag=self.name, log=log, ports=ports)

    def until_ready(self) -> None:
        asyncio.run(
            wait_until_ready(
                self.process,
                self.url,
                served_name=self.name,
                give_up_after=400,
                trouble=self.trouble,
            )
        )

    def trouble(self) -> StartError | None:
        """As a trial sees it: a launcher whose port is taken is not waited for."""
        taken = any(map(port_is_taken, read_lines(self.process.log)))
        return StartError("", "its port is in use") if taken else None

    def load(self, *prompts: tuple[int, ...], output_tokens: int) -> dict[str, float]:
        level = asyncio.run(
            run_level(
                self.url, prompts, concurrency=2, output_tokens=output_tokens, request_timeout=200
            )
        )
        assert level.failed == ()
        assert [r.output_tokens for r in level.answered] == [output_tokens] * len(prompts)
        return level_metrics(level.answered)

    def stage(self) -> str:
        progress = StartProgress()
        for line in LogReader(self.process.log).read():
            progress.feed(line, 0.0)
        return progress.stage

    def why(self, stage: str) -> Classified:
        lines = read_lines(self.process.log)
        return classify(Evidence("", "", lines, self.process.exit_status, stage))

    def stop(self) -> None:
        session = self.process.popen.pid
        stopped = self.process.stop()
        assert stopped.problems == ()
        assert stopped.port_free is True
        assert tagged.find(self.name, session) == []
        assert not self.process.scratch.exists()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(tensor_parallel: int = 1, **args: object) -> Server:
        started.append(Server(tmp_path, tensor_parallel, reserve(2), **args))
        return started[-1]

    yield make
    for server in started:
        server.stop()


def until(condition: Callable[[], object], seconds: float) -> None:
    assert tagged.wait_until(lambda: bool(condition()), seconds, every=0.05)


def test_start_measure_stop(start: Callable[..., Server]) -> None:
    server = start()
    server.until_ready()
    assert server.stage() == "ready"
    server.load((11, 12), (13, 14), output_tokens=4)
    assert server.load((21,), (22,), (23,), (24,), output_tokens=16)["output_throughput"] > 0
    info = httpx.get(f"{server.url}/server_info", timeout=60).json()
    assert info["random_seed"] == 1
    (rank,) = ranks(server.process.processes())
    assert b"NCCL_PROTO=LL" in proc(rank.pid, "environ").split(b"\0")
    begin = time.monotonic()
    stopped = server.process.stop()
    assert (stopped.exit_status, stopped.killed) == (0, 0)
    assert time.monotonic() - begin < 10  # SGLang drains for up to five seconds


def test_a_rank_that_is_killed_is_told_and_leaves_nothing(start: Callable[..., Server]) -> None:
    server = start(2)
    server.until_ready()
    server.load((11, 12), (13, 14), output_tokens=4)
    both = ranks(server.process.processes())
    assert len(both) == 2
    min(both, key=lambda rank: rank.pid).signal(signal.SIGKILL)
    until(lambda: server.process.exit_status is not None, 30)
    # Which one is told depends on who notices first, the launcher or the other rank.
    assert server.why("serving").kind in ("rank_killed", "crashed")


def test_a_port_that_somebody_took_meanwhile(tmp_path: Path) -> None:
    ports = reserve(1)
    port = ports.ports[0]
    with socket.socket() as stranger:
        # One that sets SO_REUSEADDR can take a port that is held for a server.
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        server = Server(tmp_path, 1, ports)
        try:
            with pytest.raises(StartError, match=r"status|its port is in use"):
                server.until_ready()
            found = server.why("warm-up")
            assert (found.kind, found.blame) == ("port_in_use", "machine")
        finally:
            session = server.process.popen.pid
            stopped = server.process.stop()
        assert stopped.problems == (f"port {port} is still in use",)  # by the stranger
        assert tagged.find(server.name, session) == []


def test_term_while_it_loads_leaves_no_orphans(start: Callable[..., Server]) -> None:
    """SGLang's children are not tied to the launcher yet, and go on loading without it."""
    server = start()
    until(lambda: server.stage() == "arguments read", 120)
    until(lambda: len(server.process.processes()) > 1, 60)
    os.kill(server.process.popen.pid, signal.SIGTERM)
    until(lambda: server.process.exit_status is not None, 30)
    assert server.process.exit_status == -signal.SIGTERM
    assert server.why("arguments read").kind == "stopped_from_outside"


def test_a_wrong_flag_is_told_with_its_log(start: Callable[..., Server]) -> None:
    server = start(**{"no-such-flag": 1})
    with pytest.raises(StartError, match="status 2"):
        server.until_ready()
    assert any("--no-such-flag" in line for line in server.process.tail())
    assert server.why("starting").kind == "bad_flag"
