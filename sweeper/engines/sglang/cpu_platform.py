"""The switch of Sweeper's CPU platform for SGLang.

SGLang's own CPU engine needs kernels that its package does not carry for a CPU
without AMX. It can be told about another platform through the entry point group
``sglang.srt.platforms``; pyproject.toml registers :func:`activate` there.

SGLang calls the function of *every* installed platform package when
``SGLANG_PLATFORM`` is unset, and takes the only one that answers. On a machine
with a GPU that would turn every SGLang server in this environment into a CPU
server, so :func:`activate` stays silent unless the variable names it.

This module imports nothing of SGLang: it is loaded before SGLang knows its
platform.
"""

from __future__ import annotations

import os

PLATFORM = "sweeper_cpu"
"""Name of the entry point, and the value of ``SGLANG_PLATFORM`` that selects it."""

_CLASS = "sweeper.engines.sglang.cpu_platform_class.CpuPlatform"


def activate() -> str | None:
    """Return the dotted name of the platform class, or None where nobody asked for it."""
    return _CLASS if os.environ.get("SGLANG_PLATFORM") == PLATFORM else None
