"""The page is as new as the table."""

from __future__ import annotations

from sweeper.engines.sglang.failures import failures
from sweeper.engines.sglang.failures_page import PAGE, ROOT, page


def test_the_committed_page_is_what_the_table_gives() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page()


def test_every_class_is_told() -> None:
    assert all(f"| `{kind}` |" in page() for kind in failures())
