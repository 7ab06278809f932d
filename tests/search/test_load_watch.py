"""Dead or hung under load."""

from __future__ import annotations

from sweeper.search.load_watch import RANK_GRACE, Glimpse, LoadWatch


def test_tokens_keep_it_alive_however_slowly_they_come() -> None:
    watch = LoadWatch(0.0, 10.0)
    assert all(watch.trouble(9.0 * n, Glimpse(None, 0, n)) is None for n in range(1, 50))


def test_without_a_token_it_is_hung() -> None:
    watch = LoadWatch(0.0, 10.0)
    assert watch.trouble(5.0, Glimpse(None, 0, 3)) is None
    assert watch.trouble(15.0, Glimpse(None, 0, 3)) is None
    found = watch.trouble(15.1, Glimpse(None, 0, 3))
    assert found is not None
    assert found.kind == "hung_under_load"


def test_a_dead_launcher_is_told_at_once() -> None:
    found = LoadWatch(0.0, 10.0).trouble(0.1, Glimpse(-9, 3, 0))
    assert found is not None
    assert "status -9" in found.what
    assert found.kind == ""  # the log says why


def test_ranks_may_die_a_little_before_their_launcher() -> None:
    watch = LoadWatch(0.0, 100.0)
    assert watch.trouble(1.0, Glimpse(None, 1, 0)) is None
    assert watch.trouble(1.0 + RANK_GRACE, Glimpse(None, 1, 0)) is None
    found = watch.trouble(1.1 + RANK_GRACE, Glimpse(None, 1, 0))
    assert found is not None
    assert found.kind == "dead_behind_http"


def test_ranks_that_are_seen_again_were_never_gone() -> None:
    watch = LoadWatch(0.0, 100.0)
    watch.trouble(1.0, Glimpse(None, 1, 0))
    watch.trouble(2.0, Glimpse(None, 0, 0))
    assert watch.trouble(12.0, Glimpse(None, 1, 0)) is None
