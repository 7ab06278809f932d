"""A tag of its own for each test, whose processes and files are gone after it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sweeper.servers.ending import end_left_behind


@pytest.fixture
def tag() -> Iterator[str]:
    value = f"test-{uuid.uuid4()}"
    yield value
    end_left_behind(value, grace=0.0)
