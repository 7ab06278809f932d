"""What a server may do wrong: each is a failed request, and none counts as speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from web import Routes, answer

from sweeper.load.client import LevelRun, run_level


def stream(*tokens: int, **meta: Any) -> str:
    parts = [
        {"text": "x", "meta_info": {"completion_tokens": t, "prompt_tokens": 3, **meta}}
        for t in tokens
    ]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


async def run(url: str, prompts: int = 1, concurrency: int = 1, limit: float = 10) -> LevelRun:
    return await run_level(
        url, [(1, 2, 3)] * prompts, concurrency=concurrency, output_tokens=4, request_timeout=limit
    )


async def test_tokens_come_from_the_server_not_from_chunks(
    http_server: Callable[[Routes], str],
) -> None:
    url = http_server({"/generate": answer(stream(1, 4, 4, spec_accept_length=2.5))})
    found = await run(url, prompts=5, concurrency=2)
    assert found.failed == ()
    assert len(found.answered) == 5
    assert [count for _, count in found.answered[0].chunks] == [1, 4]
    assert found.answered[0].prompt_tokens == 3
    assert found.answered[0].accept_length == 2.5


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ("", 500, "HTTP 500"),
        ("", 200, "0 of 4 tokens"),
        (stream(1, 2), 200, "2 of 4 tokens"),
        ('data: {"error": {"message": "out of memory"}}\n\n', 200, "out of memory"),
        ("data: {cut sho\n\n", 200, "no JSON"),
    ],
)
async def test_failures(
    http_server: Callable[[Routes], str], body: str, status: int, why: str
) -> None:
    found = await run(http_server({"/generate": answer(body, status)}))
    assert found.answered == ()
    assert why in found.failed[0].why


async def test_a_server_that_never_answers(http_server: Callable[[Routes], str]) -> None:
    url = http_server({"/generate": lambda _: time.sleep(3)})
    found = await run(url, limit=0.2)
    assert "no end within 0.2 s" in found.failed[0].why or "Timeout" in found.failed[0].why


async def test_nobody_there() -> None:
    found = await run("http://127.0.0.1:9")
    assert "ConnectError" in found.failed[0].why
