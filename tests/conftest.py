"""A small HTTP server that says what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from web import Routes, answer


@pytest.fixture
def http_server() -> Iterator[Callable[[Routes], str]]:
    """Starts a server with the given routes and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(routes: Routes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                routes.get(self.path, answer("", 404))(self)

            do_GET = do_POST = _any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
