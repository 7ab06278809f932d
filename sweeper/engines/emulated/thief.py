"""Whoever answers on our port before we do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import NoReturn

Answers = Mapping[str, tuple[int, str]]
"""Status and body by path; "" is for every other one."""


def stranger() -> Answers:
    """A server that is ready, under another name."""
    name = "another-server"
    meta = {"id": "0", "finish_reason": {"type": "length"}, "completion_tokens": 1}
    return {
        "/health": (200, ""),
        "/v1/models": (200, json.dumps({"object": "list", "data": [{"id": name}]})),
        "/generate": (200, json.dumps({"text": " cat", "meta_info": meta})),
        "": (200, json.dumps({"served_model_name": name, "model_path": "/models/other"})),
    }


def liar() -> Answers:
    """A server that is healthy and can do nothing yet."""
    return {"/health": (200, ""), "": (503, "")}


def steal(port: int, answers: Answers) -> int:
    """Take the port and answer there from a child process, which outlives us.

    Returns:
        the child's process number.

    Raises:
        OSError: the port is taken already.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    if pid := os.fork():
        listening.close()
        return pid
    try:
        for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _serve(listening, answers)
    finally:
        os._exit(1)


def _serve(listening: socket.socket, answers: Answers) -> NoReturn:
    while True:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(2.0)
            path = _request(connection)
            status, body = answers.get(path, answers[""])
            connection.sendall(_answer(status, body))


def _request(connection: socket.socket) -> str:
    """The path of the request; its body is read, so that closing sends no reset."""
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    length = next(
        (int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")),
        0,
    )
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return [*lines[0].split(" "), "", ""][1]


def _answer(status: int, body: str) -> bytes:
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()
