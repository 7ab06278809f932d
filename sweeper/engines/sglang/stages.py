"""How far a starting SGLang server has come, from the lines of its log.

For people who wait, never for a decision: a server is ready when it answered a
request (:mod:`sweeper.servers.readiness`), whatever its log says.
"""

from __future__ import annotations

import re
from pathlib import Path

# In the order of a start. The words are those of SGLang 0.5.5 to 0.5.23, and
# are searched for anywhere in a line: progress bars and warnings of other
# libraries are sometimes glued in front of them.
STAGES: tuple[tuple[str, str], ...] = (
    # The launcher prints this before its own imports, from 0.5.17 on.
    ("starting", r"'python -m sglang\.launch_server' is still supported"),
    ("arguments read", r"server_args=(ServerArgs\(|\{)"),
    ("distributed init", r"Init (torch distributed|parallel) begin"),
    (
        "loading weights",
        r"Load weight begin|(Loading|Multi-thread loading) [\w .-]*shards\b",
    ),
    (
        "memory pool",
        r"(KV|Mamba) Cache is allocated|Use sliding window memory pool|Memory pool end",
    ),
    (
        "capturing graphs",
        r"Capture [\w ]*(cuda|CUDA) graph begin|Capturing (batches|num tokens|prefill shape) \(",
    ),
    # After "startup complete" the port may still turn out to be taken.
    ("http up", r"Uvicorn running on"),
    # The server sends the first request to itself.
    ("warm-up", r'"GET /(get_)?model_info HTTP/[\d.]+" 200|Prefill batch\b'),
)

_ORDER = {name: position for position, (name, _) in enumerate(STAGES)}
# The furthest stage first, for a line that holds the words of two.
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in reversed(STAGES))

_BLOCK = 1 << 20
# The longest line of a start, with all settings in it, has some 20,000 bytes.
_LONGEST_LINE = 1 << 18


def stage_of(line: str) -> str | None:
    """The stage that a line of the log tells of; None for a line that tells of none."""
    return next((name for name, pattern in _PATTERNS if pattern.search(line)), None)


class LogFollower:
    """Reads a growing log and says when the server got further.

    The first rank to reach a stage counts, and a stage that was left is never
    told again: with several ranks, and with a draft model, SGLang goes through
    some stages more than once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""
        self._stage: str | None = None

    @property
    def stage(self) -> str | None:
        """The furthest stage so far."""
        return self._stage

    def new_stage(self) -> str | None:
        """Read what was appended since the last call.

        Returns:
            the furthest stage if it changed, else None. A log that does not
            exist yet has nothing to say.
        """
        before = self._stage
        try:
            with self._path.open("rb") as stream:
                if self._offset > self._path.stat().st_size:
                    # Someone emptied the file: what follows is new.
                    self._offset, self._partial = 0, b""
                stream.seek(self._offset)
                while block := stream.read(_BLOCK):
                    self._offset += len(block)
                    self._take(block)
        except FileNotFoundError:
            return None
        return self._stage if self._stage != before else None

    def _take(self, block: bytes) -> None:
        # A progress bar ends its lines with a carriage return.
        *lines, rest = re.split(rb"[\r\n]", self._partial + block)
        self._partial = rest[-_LONGEST_LINE:]
        for line in lines:
            stage = stage_of(line.decode(errors="replace"))
            if stage and (self._stage is None or _ORDER[stage] > _ORDER[self._stage]):
                self._stage = stage
