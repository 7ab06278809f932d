"""Lines as SGLang and uvicorn write them, each in one piece to the stream that it belongs to.

The logger, uvicorn's own lines and progress bars go to standard error, uvicorn's
access lines to standard output. No line of the logger names its level, so a log
level of "warning" takes the readiness line away with the others.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from http import HTTPStatus

from sweeper.engines.emulated.clock import Clock

STDOUT, STDERR = 1, 2
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


@dataclass(frozen=True)
class Log:
    """Writes the lines of one process.

    Args:
        clock: what time it is in the timestamps.
        tag: `` TP3``, with the space, or nothing.
        level: of ``--log-level``; what is below is not written.
        http_level: of ``--log-level-http``, for uvicorn's lines.
        milliseconds: the timestamps have them, as with ``SGLANG_LOG_MS=1``.
        foreign: write as a version would of which nobody knows the words.
    """

    clock: Clock
    tag: str = ""
    level: str = "info"
    http_level: str = "info"
    milliseconds: bool = False
    foreign: bool = False

    def tagged(self, tag: str) -> Log:
        """The same log for a rank."""
        return replace(self, tag=tag)

    def at(self, clock: Clock) -> Log:
        """The same log with another clock."""
        return replace(self, clock=clock)

    def info(self, text: str) -> None:
        """A line of the logger, of level INFO."""
        self.line(text, "info")

    def warning(self, text: str) -> None:
        """A line of the logger, of level WARNING."""
        self.line(text, "warning")

    def error(self, text: str) -> None:
        """A line of the logger, of level ERROR."""
        self.line(text, "error")

    def line(self, text: str, level: str = "info") -> None:
        """A line of the logger."""
        if LEVELS[level] >= LEVELS.get(self.level, 20):
            self._write(STDERR, text, level)

    def uvicorn(self, text: str, level: str = "info") -> None:
        """A line that uvicorn says about itself."""
        if LEVELS[level] >= LEVELS.get(self.http_level, 20):
            self._write(STDERR, f"{level.upper() + ':':<9} {text}", level)

    def access(self, client: str, method: str, path: str, status: int) -> None:
        """One answered request. ``client`` is ``address:port``."""
        if LEVELS.get(self.http_level, 20) <= LEVELS["info"]:
            phrase = HTTPStatus(status).phrase
            words = f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {phrase}'
            self._write(STDOUT, words, "info")

    def raw(self, text: str, stream: int = STDERR) -> None:
        """Text without a timestamp: warnings of libraries, tracebacks, progress bars."""
        put(stream, reworded(text) if self.foreign else text)

    def _write(self, stream: int, text: str, level: str) -> None:
        if self.foreign:
            stamp = self.clock.stamp(milliseconds=True).replace(" ", "T")
            put(stream, f"{stamp}Z |{level[0].upper()}| {self.tag.strip()}: {reworded(text)}\n")
        else:
            put(stream, f"[{self.clock.stamp(self.milliseconds)}{self.tag}] {text}\n")


def put(stream: int, text: str) -> None:
    """Write all of ``text``. A reader that is gone is no reason to end.

    Straight to the descriptor: nothing is held back in a buffer that a kill, or
    a fork, would lose or double.
    """
    data = text.encode(errors="replace")
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(stream, data) :]


# In the words of no version that we know; no pattern for SGLang's stages may match them.
_FOREIGN = (
    (r"^server_args=.*", "Resolved configuration follows in the debug channel"),
    (r"'python -m sglang\.launch_server' is still supported.*", "legacy entry point"),
    (r"Init (?:parallel|torch distributed) begin\.", "Joining the process group"),
    (r"Init (?:parallel|torch distributed) ends\.", "Joined the process group;"),
    (r"Load weight begin\.", "Fetching parameters;"),
    (r"Load weight end\.", "Parameters are in place;"),
    (r"Multi-thread loading shards", "Fetching parameters"),
    (r"KV Cache is allocated\.", "Reserved attention state;"),
    (r"Memory pool end\.", "Reservation done;"),
    (r"Disable prefill CUDA graph because.*", "Prefill runs eagerly"),
    (r"Capture ([\w ]*)CUDA graph begin\.", r"Recording \1steps;"),
    (r"Capture ([\w ]*)CUDA graph end\.", r"Recorded \1steps;"),
    (r"Capturing batches \(", "Recording step ("),
    (r"max_total_num_tokens=", "Room for tokens: "),
    (r"Engine startup timings.*", "Timings are in the debug channel"),
    (r"Uvicorn running on", "Listening on"),
    (r"Application startup complete\.", "Web application is up"),
    (r'"(\w+) (\S+) HTTP/[\d.]+" (\d+) \w.*', r"\1 \2 -> \3"),
    (r"The server is fired up and ready to roll!", "Accepting traffic"),
    (r"Prefill batch", "Prompt step"),
    (r"Decode batch", "Token step"),
)


def reworded(text: str) -> str:
    """The same line as another version might put it."""
    for pattern, words in _FOREIGN:
        text = re.sub(pattern, words, text, flags=re.MULTILINE)
    return text
