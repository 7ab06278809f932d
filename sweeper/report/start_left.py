"""How long a starting server will still take, from how long earlier starts took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median


def start_left(
    earlier: Sequence[Mapping[str, float]], stage: str, in_stage: float, done: float | None
) -> float | None:
    """Seconds until the server is ready, or None where nothing tells.

    The first start of a sweep says little about the others: it fills the page
    cache and compiles kernels (144 seconds, then 55, for the same
    configuration). It counts only as long as it is the only one that knows.

    A stage that takes longer than it usually did is expected to take as long
    as the next longer one of all earlier starts did; where there is none, it
    is expected to end now, or, where its progress is known, to go on for no
    longer than it already took. So the estimate never goes below what the
    stages after it will take.

    Progress counts only in a stage whose steps take about as long as each
    other; for other stages ``done`` is better None. A stage that is all done
    and has not ended says nothing either: not all ranks draw a progress bar.

    Without earlier starts the answer is None, also where the progress of the
    stage is known: that would say how long the stage will take, not the start.

    Args:
        earlier: for each earlier start of this sweep that became ready, how many
            seconds each stage took, in the order of a start. The oldest first.
        stage: in which the server is.
        in_stage: seconds since it began.
        done: how much of the stage is done, from 0 to 1, or None.
    """
    order = _order(earlier)
    if stage not in order:
        return None
    after = order[order.index(stage) + 1 :]
    later = earlier[1:] or earlier
    rest = median(sum(start.get(name, 0.0) for name in after) for start in later)
    expected = _expected(earlier, stage, in_stage)
    if done is None or done >= 1:
        return expected - in_stage + rest
    return expected * (1 - max(0.0, done)) + rest


def _expected(earlier: Sequence[Mapping[str, float]], stage: str, in_stage: float) -> float:
    """How long the stage will take altogether, given that it took ``in_stage`` so far, in seconds."""
    known = [start[stage] for start in earlier if stage in start]
    later = [start[stage] for start in earlier[1:] if stage in start] or known
    usual = median(later)
    if in_stage <= usual:
        return usual
    return min((length for length in known if length > in_stage), default=in_stage)


def _order(earlier: Sequence[Mapping[str, float]]) -> list[str]:
    """The stages of all starts in one order: not every configuration goes through all of them."""
    order: list[str] = []
    for start in earlier:
        place = 0
        for name in start:
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1
    return order
