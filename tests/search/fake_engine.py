"""A server that speaks as much of SGLang as a trial needs, and misbehaves when told to.

Run as ``fake_engine.py -m sglang.launch_server --port P --served-model-name N ...``.
``FAKE_FAULT`` in its environment says what goes wrong, and ``FAKE_DELAY`` how many
seconds each answer takes. It is a test double and no engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


FAULT = os.environ.get("FAKE_FAULT", "")
DELAY = float(os.environ.get("FAKE_DELAY", "0"))
requests = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")

    def _send(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send("", 503 if FAULT == "never-healthy" else 200)
        elif self.path == "/v1/models":
            self._send(json.dumps({"data": [{"id": option("--served-model-name")}]}))
        elif self.path == "/server_info":
            self._send(json.dumps({"tp_size": 1, "max_running_requests": 48}))
        else:
            self._send("", 404)

    def do_POST(self) -> None:
        global requests
        body = self._body()
        if self.path == "/tokenize":
            tokens = [[len(word) for word in text.split()] for text in body["prompt"]]
            self._send(json.dumps({"tokens": tokens}), 404 if FAULT == "no-tokenize" else 200)
        elif self.path.startswith("/flush_cache"):
            self._send("")
        elif self.path == "/generate" and not body.get("stream"):
            self._send(json.dumps({"text": "x", "meta_info": {"completion_tokens": 1}}))
        else:
            requests += 1
            if FAULT == "dies-under-load" and requests > 3:
                os._exit(3)
            if FAULT == "slow":
                time.sleep(60)
            if FAULT == "refuses" and requests > 2:
                self._send("out of memory", 500)
                return
            time.sleep(DELAY)
            count = body["sampling_params"]["max_new_tokens"]
            prompt = len(body["input_ids"])
            parts = [
                {"meta_info": {"completion_tokens": n, "prompt_tokens": prompt}} for n in (1, count)
            ]
            self._send("".join(f"data: {json.dumps(p)}\n\n" for p in parts))

    def log_message(self, *_: Any) -> None:
        return


if "sglang.launch_server" not in sys.argv:
    # Whoever asks for anything else gets the real interpreter.
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
print(f"server_args={sys.argv[1:]}", flush=True)
if FAULT == "port-taken-once":
    seen = Path(os.environ["FAKE_MARK"])
    if not seen.exists():
        seen.touch()
        print(
            "ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 1): address already in use",
            flush=True,
        )
        sys.exit(3)
if FAULT == "exits":
    print("ValueError: this combination is not supported", flush=True)
    sys.exit(1)
ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler).serve_forever()
