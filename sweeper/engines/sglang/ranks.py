"""Which processes of a server compute: SGLang gives its schedulers a title of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sweeper.servers.tagged import ProcessRef

# One process a rank, "sglang::scheduler_TP3"; the plain name with a single rank.
TITLE = b"sglang::scheduler"


def ranks(processes: Iterable[ProcessRef]) -> frozenset[ProcessRef]:
    """Those of ``processes`` that are scheduler processes."""
    return frozenset(process for process in processes if _title(process.pid).startswith(TITLE))


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
