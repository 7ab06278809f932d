"""Servers that live and will never be ready."""

from __future__ import annotations

import pytest

from sweeper.search.start_watch import PORT_GRACE, RANK_GRACE, StartSigns, start_trouble


@pytest.mark.parametrize(
    ("signs", "kind", "words"),
    [
        (StartSigns(), None, ""),
        (StartSigns(still=10.0), None, ""),
        (StartSigns(still=10.1), "hung_start", "nothing moved in it for 10 s"),
        (StartSigns(rank_gone=RANK_GRACE), None, ""),
        (StartSigns(rank_gone=RANK_GRACE + 1), "", "scheduler process"),
        (StartSigns(port_taken=PORT_GRACE), None, ""),
        (StartSigns(port_taken=PORT_GRACE + 1), "", "port is in use"),
        # The cause explains why nothing moves.
        (StartSigns(11.0, RANK_GRACE + 1, PORT_GRACE + 1), "", "port is in use"),
    ],
)
def test_each_sign(signs: StartSigns, kind: str | None, words: str) -> None:
    found = start_trouble(signs, 10.0)
    assert (None if found is None else found.kind) == kind
    assert words in str(found)
