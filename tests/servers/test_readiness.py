"""Ready means alive, ours, healthy, and a real completion."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
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


async def wait(
    server: ServerProcess,
    url: str,
    seconds: float,
    trouble: Callable[[], StartError | None] = lambda: None,
) -> None:
    await wait_until_ready(server, url, served_name="ours", give_up_after=seconds, trouble=trouble)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    server = launch(command, dict(os.environ), tag=f"test-{uuid.uuid4()}", log=tmp_path / "log")
    yield server
    server.stop()


async def test_ready(http_server: Callable[[Routes], str], sleeper: ServerProcess) -> None:
    await wait(sleeper, http_server(READY), 10)


async def test_trouble_ends_the_wait(
    http_server: Callable[[Routes], str], sleeper: ServerProcess
) -> None:
    url = http_server(READY | {"/health": answer("", 503)})
    looks = iter([None, None, StartError("hung_start", "nothing moved")])
    with pytest.raises(StartError, match="nothing moved, and /health answers 503") as caught:
        await wait(sleeper, url, 30, lambda: next(looks))
    assert caught.value.kind == "hung_start"


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/generate"])
async def test_a_server_that_wants_a_key_is_not_waited_for(
    http_server: Callable[[Routes], str], sleeper: ServerProcess, path: str
) -> None:
    begin = time.monotonic()
    with pytest.raises(StartError, match=f"{path} answers 401") as caught:
        await wait(sleeper, http_server(READY | {path: answer("", 401)}), 60)
    assert caught.value.kind == "refused_requests"
    assert time.monotonic() - begin < 10


async def test_a_death_is_seen_while_an_answer_is_awaited(sleeper: ServerProcess) -> None:
    """The port is open and nobody answers, as when a stranger holds it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        begin = time.monotonic()
        waiting = asyncio.ensure_future(wait(sleeper, url, 60))
        await asyncio.sleep(0.5)
        sleeper.popen.kill()
        with pytest.raises(StartError, match="status -9"):
            await waiting
        assert time.monotonic() - begin < 2.5


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
        await wait(sleeper, url, 0.5)


async def test_nothing_listens(sleeper: ServerProcess) -> None:
    with pytest.raises(StartError, match="ConnectError"):
        await wait(sleeper, "http://127.0.0.1:9", 0.5)


async def test_dead_behind_a_port_that_answers(
    http_server: Callable[[Routes], str], sleeper: ServerProcess
) -> None:
    sleeper.popen.kill()
    sleeper.popen.wait()
    with pytest.raises(StartError, match="status -9"):
        await wait(sleeper, http_server(READY), 10)
