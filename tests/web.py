"""Routes of the small HTTP server of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

Routes = dict[str, Callable[[BaseHTTPRequestHandler], None]]


def answer(body: Any, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    """A route that sends ``body``, as JSON unless it is text already."""

    def route(handler: BaseHTTPRequestHandler) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return route
