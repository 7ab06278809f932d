"""The real SGLang on this machine's CPU: start, measure, stop, nothing left."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from pathlib import Path

import httpx
import pytest

from sweeper.engines.sglang.launch import launch as sglang_launch
from sweeper.load.client import run_level
from sweeper.load.metrics import level_metrics
from sweeper.models.resolver import resolve
from sweeper.servers import process, tagged
from sweeper.servers.readiness import StartError, wait_until_ready

pytestmark = pytest.mark.engine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def start(
    tmp_path: Path, port: int, tensor_parallel: int = 1, **args: object
) -> tuple[process.ServerProcess, str]:
    name = f"sweeper-{uuid.uuid4().hex[:8]}"
    model = resolve("embedded-tiny", python=Path(sys.executable))
    what = sglang_launch(
        python=Path(sys.executable),
        model=model.path,
        port=port,
        served_name=name,
        args={"random-seed": 1, "tensor-parallel-size": tensor_parallel, **args},
        env={"HF_HUB_OFFLINE": "1", "NCCL_PROTO": "LL"},
        inherited=os.environ,
        device="cpu",
    )
    return process.launch(what.command, what.env, tag=name, log=tmp_path / "server.log"), name


@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_start_measure_stop(tmp_path: Path, tensor_parallel: int) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server, name = start(tmp_path, port, tensor_parallel)
    try:
        asyncio.run(wait_until_ready(server, url, served_name=name, give_up_after=400))
        asyncio.run(
            run_level(url, [(11, 12)] * 2, concurrency=2, output_tokens=4, request_timeout=200)
        )
        level = asyncio.run(
            run_level(
                url,
                [(21,), (22,), (23,), (24,)],
                concurrency=2,
                output_tokens=16,
                request_timeout=200,
            )
        )
        assert level.failed == ()
        assert [r.output_tokens for r in level.answered] == [16] * 4
        assert level_metrics(level.answered)["output_throughput"] > 0
        info = httpx.get(f"{url}/server_info", timeout=60).json()
        assert info["tp_size"] == tensor_parallel
        assert info["random_seed"] == 1
        schedulers = [p.pid for p in tagged.find(name) if b"scheduler" in proc(p.pid, "cmdline")]
        assert len(schedulers) == tensor_parallel
        for pid in schedulers:
            assert b"NCCL_PROTO=LL" in proc(pid, "environ").split(b"\0")
    except StartError as error:
        pytest.fail(f"{error}\n" + "\n".join(server.tail(40)))
    finally:
        session = server.popen.pid
        server.stop()
    assert tagged.find(name, session) == []


def test_a_wrong_flag_is_told_with_its_log(tmp_path: Path) -> None:
    port = free_port()
    server, name = start(tmp_path, port, **{"no-such-flag": 1})
    try:
        with pytest.raises(StartError, match="status 2"):
            asyncio.run(
                wait_until_ready(
                    server, f"http://127.0.0.1:{port}", served_name=name, give_up_after=200
                )
            )
        assert any("--no-such-flag" in line for line in server.tail())
    finally:
        server.stop()
