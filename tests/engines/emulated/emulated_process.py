"""An emulated engine as a real process, for tests."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from sweeper.engines.sglang.log_reader import lines_of
from sweeper.servers import tagged
from sweeper.servers.ports import free_ports
from sweeper.servers.process import ServerProcess, launch

QUICK = {"EMULATED_START_SPEED": "300", "EMULATED_PROFILE": "flat"}
READY = "The server is fired up and ready to roll!"


def stage_of(text: str) -> str | None:
    """The stage that a line of a log tells of."""
    return next((line.stage for line in lines_of(text.encode()) if line.stage), None)


@dataclass
class Emulated:
    """A started server, with the address that it should answer at."""

    server: ServerProcess
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def text(self) -> str:
        return self.server.log.read_text(encoding="utf-8")

    @property
    def left(self) -> list[psutil.Process]:
        """All its processes but the launcher."""
        found = tagged.find(self.server.tag, self.server.popen.pid)
        return [psutil.Process(one.pid) for one in found if one.pid != self.server.popen.pid]

    def wait_for(self, words: str, seconds: float = 20.0) -> None:
        wait_until(lambda: words in self.text, seconds, lambda: f"no {words!r} in\n{self.text}")

    def ended(self, seconds: float = 20.0) -> int:
        """Its exit status, once it has one."""
        return self.server.popen.wait(seconds)


def wait_until(
    condition: Callable[[], bool], seconds: float, why: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.01)


def start(folder: Path, *flags: str, **environment: str) -> Emulated:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "sweeper.engines.emulated", "--model-path", "/models/kimi"]
    command += ["--served-model-name", "ours", "--port", str(port), "--host", "127.0.0.1", *flags]
    env = {**os.environ, **QUICK, "SPT_NOENV": "1", **environment}
    tag = f"test-{uuid.uuid4()}"
    return Emulated(launch(command, env, tag=tag, log=folder / f"{tag}.log"), port)


def moves(all_of_them: Iterable[Emulated]) -> list[Emulated]:
    """Those that write or compute within half a second."""

    def look(one: Emulated) -> tuple[str, float]:
        family = [psutil.Process(one.server.popen.pid), *one.left]
        return one.text, sum(sum(process.cpu_times()[:2]) for process in family)

    before = [(one, look(one)) for one in all_of_them]
    time.sleep(0.5)
    return [one for one, then in before if look(one) != then]


@dataclass(frozen=True)
class Outcome:
    """How a server ended.

    Args:
        status: of its launcher.
        text: of its log.
        left: processes right after that.
    """

    status: int
    text: str
    left: int


def last_words(text: str) -> str:
    """The last line of what a fault prints, up to the first mark in it."""
    return (text.strip().splitlines() or [""])[-1].split("@")[0]
