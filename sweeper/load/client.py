"""A closed-loop client of SGLang's native ``/generate``, streaming.

Tokens are counted from the server's own usage numbers in every chunk, never
from the number of chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from sweeper.load.corpus import Prompt
from sweeper.load.metrics import RequestTimes


@dataclass(frozen=True)
class RequestFailed:
    """A request that was not answered in full, and why."""

    why: str


@dataclass(frozen=True)
class LevelRun:
    """What a load level gave."""

    answered: tuple[RequestTimes, ...]
    failed: tuple[RequestFailed, ...]


@dataclass
class Progress:
    """What has come back so far, for whoever watches from outside.

    Args:
        tokens: of all answers together.
    """

    tokens: int = 0


async def run_level(
    url: str,
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    output_tokens: int,
    request_timeout: float,
    progress: Progress | None = None,
) -> LevelRun:
    """Send all ``prompts``, ``concurrency`` of them in flight at any time.

    Args:
        url: of the server, without a path.
        prompts: one a request, as token ids.
        concurrency: requests in flight.
        output_tokens: exact length of each answer.
        request_timeout: seconds after which a request has failed.
        progress: is kept up to date while the level runs.
    """
    progress = progress or Progress()
    waiting = iter(prompts)
    async with contextlib.AsyncExitStack() as stack:
        # A client for each stream. In one pool for all, httpx looks through every
        # connection for every request: at concurrency 128 the second wave of requests
        # was sent over 6 s instead of at once, and 15 % of the throughput was missing.
        clients = [
            await stack.enter_async_context(
                # Plain HTTP on the loopback address: no certificates to load.
                httpx.AsyncClient(
                    base_url=url,
                    timeout=request_timeout,
                    trust_env=False,
                    verify=False,  # noqa: S501
                )
            )
            for _ in range(concurrency)
        ]
        streams = [
            _stream(client, waiting, output_tokens, request_timeout, progress) for client in clients
        ]
        results = [item for found in await asyncio.gather(*streams) for item in found]
    return LevelRun(
        tuple(item for item in results if isinstance(item, RequestTimes)),
        tuple(item for item in results if isinstance(item, RequestFailed)),
    )


async def _stream(
    client: httpx.AsyncClient,
    prompts: Iterable[Prompt],
    output_tokens: int,
    request_timeout: float,
    progress: Progress,
) -> list[RequestTimes | RequestFailed]:
    results: list[RequestTimes | RequestFailed] = []
    for prompt in prompts:
        try:
            async with asyncio.timeout(request_timeout):
                results.append(await _request(client, prompt, output_tokens, progress))
        except TimeoutError:
            results.append(RequestFailed(f"no end within {request_timeout:g} s"))
        except httpx.HTTPError as error:
            results.append(RequestFailed(f"{type(error).__name__}: {error}"))
    return results


async def _request(
    client: httpx.AsyncClient, prompt: Prompt, output_tokens: int, progress: Progress
) -> RequestTimes | RequestFailed:
    body = {
        "input_ids": list(prompt),
        "stream": True,
        "sampling_params": {
            "max_new_tokens": output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        },
    }
    chunks: list[tuple[float, int]] = []
    meta: dict[str, Any] = {}
    sent = time.perf_counter()
    async with client.stream("POST", "/generate", json=body) as response:
        if response.status_code != httpx.codes.OK:
            text = (await response.aread()).decode(errors="replace")
            return RequestFailed(f"HTTP {response.status_code} {text[:300]}".strip())
        async for line in response.aiter_lines():
            if not line.startswith("data:") or line.endswith("[DONE]"):
                continue
            now = time.perf_counter()
            try:
                part = json.loads(line[5:])
            except ValueError:
                return RequestFailed("a chunk that is no JSON")
            if "error" in part:  # SGLang sends errors inside the stream, under HTTP 200
                return RequestFailed(f"error in the stream: {part['error']}")
            meta = part.get("meta_info", {})
            count = meta.get("completion_tokens", 0)
            before = chunks[-1][1] if chunks else 0
            if count > before:
                progress.tokens += count - before
                chunks.append((now, count))
    if not chunks or chunks[-1][1] != output_tokens:
        got = chunks[-1][1] if chunks else 0
        return RequestFailed(f"{got} of {output_tokens} tokens before the stream ended")
    accept = meta.get("spec_accept_length")
    return RequestTimes(
        sent, tuple(chunks), int(meta["prompt_tokens"]), float(accept) if accept else None
    )
