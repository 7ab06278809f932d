"""When a server is ready: alive, ours, healthy, and it completed a real request.

Never the log line alone: with its port taken by another server, SGLang prints
that it is ready while it dies, and every request is answered by the other one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx

from sweeper.servers.process import ServerProcess

# A dead server must be noticed at once; and a server that is asked all the time
# would look busy by answering us, so it is asked less often when it is slow.
_POLL = 0.2
_POLL_SLOW = 1.0
_QUICK_FOR = 10.0


class StartError(Exception):
    """The server did not become ready; the message says what was seen.

    Args:
        kind: the class of the failure as far as it can be told without the log;
            empty when the server ended by itself.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


async def wait_until_ready(
    server: ServerProcess,
    url: str,
    *,
    served_name: str,
    give_up_after: float,
    trouble: Callable[[], StartError | None] = lambda: None,
) -> None:
    """Return when a real completion came back from our own server.

    Args:
        server: the process that was started.
        url: where it should answer, without a path.
        served_name: the unique model name that it was started with.
        give_up_after: seconds from now.
        trouble: what is wrong with a server that lives, such as that nothing moves in it.

    Raises:
        StartError: it died, refuses to answer, is in trouble, or was not ready in time.
    """
    begin = time.monotonic()
    answered: float | None = None
    seen = "nothing answered"
    async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:
        asking: asyncio.Task[str] | None = None
        try:
            while (now := time.monotonic()) - begin < give_up_after:
                if server.exit_status is not None:
                    raise StartError("", f"the server ended with status {server.exit_status}")
                if error := trouble():
                    raise StartError(error.kind, f"{error}, and {seen}")
                asking = asking or asyncio.ensure_future(_missing(client, served_name))
                # The answer may never come; the process is looked at meanwhile.
                if not (await asyncio.wait({asking}, timeout=_POLL))[0]:
                    continue
                try:
                    seen, asking = asking.result(), None
                    answered = answered or now
                except httpx.HTTPError as refusal:
                    seen, asking = f"{type(refusal).__name__} on its port", None
                # Once more after the answer: a dying server may have stood before another.
                if not seen and server.exit_status is None:
                    return
                slow = answered is not None and now - answered > _QUICK_FOR
                await asyncio.sleep(_POLL_SLOW if slow else _POLL)
        finally:
            if asking is not None:
                asking.cancel()
    raise StartError("start_timeout", f"not ready after {give_up_after:g} s: {seen}")


async def _missing(client: httpx.AsyncClient, served_name: str) -> str:
    """What is missing for readiness; the empty text when nothing is."""
    health = await client.get("/health")
    _raise_if_refused("/health", health)
    if health.status_code != httpx.codes.OK:
        return f"/health answers {health.status_code}"
    answer = await client.get("/v1/models")
    _raise_if_refused("/v1/models", answer)
    try:
        names = [model.get("id") for model in answer.json().get("data", [])]
    except (ValueError, AttributeError, TypeError):
        names = []
    if served_name not in names:
        return "another server answers on its port"
    body = {"text": "The", "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
    answer = await client.post("/generate", json=body)
    _raise_if_refused("/generate", answer)
    try:
        tokens = answer.json().get("meta_info", {}).get("completion_tokens")
    except (ValueError, AttributeError):
        tokens = None
    if answer.status_code != httpx.codes.OK or not tokens:
        return "no completion came back"
    return ""


def _raise_if_refused(path: str, answer: httpx.Response) -> None:
    # Waiting will not change its mind: it wants a key.
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise StartError("refused_requests", f"{path} answers {answer.status_code}")
