"""When a server is ready: alive, ours, healthy, and it completed a real request.

Never the log line alone: with its port taken by another server, SGLang prints
that it is ready while it dies, and every request is answered by the other one.
"""

from __future__ import annotations

import asyncio
import time

import httpx

from sweeper.servers.process import ServerProcess


class StartError(Exception):
    """The server did not become ready; the message says what was seen."""


async def wait_until_ready(
    server: ServerProcess, url: str, *, served_name: str, give_up_after: float
) -> None:
    """Return when a real completion came back from our own server.

    Args:
        server: the process that was started.
        url: where it should answer, without a path.
        served_name: the unique model name that it was started with.
        give_up_after: seconds from now.

    Raises:
        StartError: it died, or it was not ready in time.
    """
    deadline = time.monotonic() + give_up_after
    seen = "nothing answered"
    async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:
        while time.monotonic() < deadline:
            if server.exit_status is not None:
                raise StartError(f"the server ended with status {server.exit_status}")
            try:
                seen = await _missing(client, served_name)
            except httpx.HTTPError as error:
                seen = f"{type(error).__name__} on its port"
            # Once more after the answer: a dying server may have stood in front of another.
            if not seen and server.exit_status is None:
                return
            await asyncio.sleep(0.2)
    raise StartError(f"not ready after {give_up_after:g} s: {seen}")


async def _missing(client: httpx.AsyncClient, served_name: str) -> str:
    """What is missing for readiness; the empty text when nothing is."""
    health = await client.get("/health")
    if health.status_code != httpx.codes.OK:
        return f"/health answers {health.status_code}"
    models = (await client.get("/v1/models")).json().get("data", [])
    if served_name not in [model.get("id") for model in models]:
        return "another server answers on its port"
    body = {"text": "The", "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
    answer = await client.post("/generate", json=body)
    if answer.status_code != httpx.codes.OK or not answer.json().get("meta_info", {}).get(
        "completion_tokens"
    ):
        return "no completion came back"
    return ""
