"""What the load asks of a server beside the load itself."""

from __future__ import annotations

from collections.abc import Sequence

import httpx


class ServerRefusedError(Exception):
    """The server does not answer a request that measuring needs; the message says which.

    Args:
        answered: it did answer, with a refusal. Otherwise nobody is there, it is stuck, or
            it failed inside (a status of 500 and above).
    """

    def __init__(self, what: str, *, answered: bool = True) -> None:
        super().__init__(what)
        self.answered = answered


async def tokenize(url: str, served_name: str, texts: Sequence[str]) -> list[list[int]]:
    """The texts as the server's own tokenizer cuts them, without special tokens.

    Raises:
        ServerRefusedError: no such endpoint, or no answer.
    """
    body = {"model": served_name, "prompt": list(texts), "add_special_tokens": False}
    answer = await _ask("POST", url, "/tokenize", body)
    tokens = answer.json().get("tokens")
    if not isinstance(tokens, list) or len(tokens) != len(texts):
        raise ServerRefusedError("/tokenize gave no token ids")
    return [[int(token) for token in text] for text in tokens]


async def flush_cache(url: str) -> None:
    """Empty the prefix cache, so that no level profits from the one before.

    The server refuses while requests are still being cleaned up, so it is given a while.

    Raises:
        ServerRefusedError: the cache is not empty now.
    """
    await _ask("POST", url, "/flush_cache?timeout=20", None)


async def _ask(method: str, url: str, path: str, body: object) -> httpx.Response:
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as client:
            answer = await client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise ServerRefusedError(f"{path}: {type(error).__name__}", answered=False) from None
    if answer.status_code != httpx.codes.OK:
        raise ServerRefusedError(
            f"{path} answers {answer.status_code}: {answer.text[:200]}",
            answered=answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR,
        )
    return answer
