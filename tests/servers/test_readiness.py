"""Ready means alive, ours, healthy, and a real completion."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from web import Routes, answer

from sweeper.servers.process import ServerProcess, launch
from sweeper.servers.readiness import StartError, wait_until_ready

READY: Routes = {
    "/health": answer(""),
    "/v1/models": answer({"data": [{"id": "ours"}]}),
    "/generate": answer({"meta_info": {"completion_tokens": 1}}),
}


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    server = launch(command, dict(os.environ), tag=f"test-{uuid.uuid4()}", log=tmp_path / "log")
    yield server
    server.stop()


async def test_ready(http_server: Callable[[Routes], str], sleeper: ServerProcess) -> None:
    await wait_until_ready(sleeper, http_server(READY), served_name="ours", give_up_after=10)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"/health": answer("", 503)}, "/health answers 503"),
        ({"/v1/models": answer({"data": [{"id": "theirs"}]})}, "another server answers"),
        ({"/generate": answer("", 500)}, "no completion"),
        ({"/generate": answer({"meta_info": {"completion_tokens": 0}})}, "no completion"),
    ],
)
async def test_not_ready(
    http_server: Callable[[Routes], str], sleeper: ServerProcess, change: Routes, seen: str
) -> None:
    url = http_server(READY | change)
    with pytest.raises(StartError, match=seen):
        await wait_until_ready(sleeper, url, served_name="ours", give_up_after=0.5)


async def test_nothing_listens(sleeper: ServerProcess) -> None:
    with pytest.raises(StartError, match="ConnectError"):
        await wait_until_ready(sleeper, "http://127.0.0.1:9", served_name="ours", give_up_after=0.5)


async def test_dead_behind_a_port_that_answers(
    http_server: Callable[[Routes], str], sleeper: ServerProcess
) -> None:
    sleeper.popen.kill()
    sleeper.popen.wait()
    with pytest.raises(StartError, match="status -9"):
        await wait_until_ready(sleeper, http_server(READY), served_name="ours", give_up_after=10)
