"""Starts emulated engines, and sees that nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated_process import Emulated, start

from sweeper.servers import tagged


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Callable[..., Emulated]]:
    started: list[Emulated] = []

    def begin(*flags: str, **environment: str) -> Emulated:
        started.append(start(tmp_path, *flags, **environment))
        return started[-1]

    yield begin
    for one in started:
        one.server.stop(grace=0.0)
        assert tagged.find(one.server.tag, one.server.popen.pid) == []
