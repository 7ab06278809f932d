"""Measured levels for the search."""

from __future__ import annotations

import pytest


@pytest.fixture
def levels() -> dict[int, dict[str, float]]:
    """Two levels of a trial."""
    return {
        1: {"output_throughput": 50.0, "ttft_p95_ms": 100.0},
        4: {"output_throughput": 200.0, "ttft_p95_ms": 400.0},
    }
