"""How far a starting server has come, and how long each stage of its start took.

Pure: fed with lines and with the seconds since the launch, it knows no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sweeper.engines.sglang.log_patterns import LogPatterns, log_patterns
from sweeper.engines.sglang.log_reader import LogLine


@dataclass(frozen=True)
class Progress:
    """How much of something is done: ``done`` of ``total`` files or graphs."""

    done: int
    total: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / self.total


class StartProgress:
    """The state of a start, as its log tells it.

    The first rank that reaches a stage counts, and a stage that was left does
    not come again: with several ranks, and with a draft model, SGLang goes
    through some stages more than once.
    """

    def __init__(self, patterns: LogPatterns | None = None) -> None:
        self._patterns = patterns or log_patterns()
        self._order = {name: place for place, name in enumerate(self._patterns.names)}
        self._stage = self._patterns.names[0]
        # Stage -> seconds after the launch; the first one begins with it.
        self._entered = {self._stage: 0.0}
        self._last = 0.0
        # How often each rank said so.
        self._loads: Counter[str] = Counter()
        self._captures: Counter[str] = Counter()
        self._draft = False
        self._bars = _Bars()

    @property
    def stage(self) -> str:
        """The furthest stage so far."""
        return self._stage

    @property
    def progress(self) -> Progress | None:
        """Of the stage's current pass: of the slowest rank, where several tell.

        Graphs are captured in several passes, and each begins at nothing.
        """
        return self._bars.slowest

    @property
    def done(self) -> float | None:
        """How much of the stage is done, from 0 to 1, where its time left follows from that.

        None where it does not: while graphs are captured, nearly all of the
        time goes into the first; a draft model's weights are the smaller part
        of all; and when the bar is full, some ranks are still at work
        (46 of 46 after 16 of 42 seconds, in a public log of DeepSeek V4).
        """
        if self._stage not in self._patterns.steady or self._draft or self.progress is None:
            return None
        return self.progress.share if self.progress.share < 1 else None

    @property
    def draft(self) -> bool:
        """The draft model is being loaded, or its graphs are being captured."""
        return self._draft

    @property
    def last(self) -> float:
        """When the latest line came, in seconds after the launch."""
        return self._last

    def feed(self, line: LogLine, seconds: float) -> None:
        """Take one line.

        Args:
            line: the next one. Of lines that have no end yet, only progress
                bars may be given, since such a line comes again.
            seconds: since the launch. A clock that goes backward stands still.
        """
        self._last = max(self._last, seconds)
        if line.stage and self._order[line.stage] > self._order[self._stage]:
            self._stage = line.stage
            self._entered[line.stage] = self._last
            self._next_pass(draft=False)
        begins = self._patterns.weights_begin, self._patterns.capture_begin
        loads, captures = (bool(pattern.search(line.text)) for pattern in begins)
        if loads and _first_of_all(self._loads, line.rank):
            self._next_pass(draft=self._loads[line.rank] > 1)
        elif captures and _first_of_all(self._captures, line.rank):
            self._next_pass(draft=bool(self._patterns.draft_capture_begin.search(line.text)))
        # With some versions the draft model is loaded after graphs were
        # captured: its bar is no progress of the stage that counts.
        if line.progress and line.stage == self._stage:
            self._bars.take(line.rank, *line.progress)

    def stages(self, now: float) -> dict[str, float]:
        """How many seconds each stage took, in the order of a start.

        One that still goes on is told up to now. "ready" takes no time and is
        left out; stages that the log did not tell of are contained in the one
        before.

        Args:
            now: in seconds after the launch.
        """
        ends = [*list(self._entered.values())[1:], max(now, self._last)]
        took = {
            name: end - begin
            for (name, begin), end in zip(self._entered.items(), ends, strict=True)
        }
        took.pop(self._patterns.names[-1], None)
        return took

    def _next_pass(self, *, draft: bool) -> None:
        self._draft = draft
        self._bars = _Bars()


def replay(lines: Iterable[LogLine], patterns: LogPatterns | None = None) -> StartProgress:
    """A start as the timestamps of its log tell it.

    They are whole seconds, and the first one stands for the launch. A line
    without one came when the line before did. Call ``stages(replayed.last)``
    for what each stage took.
    """
    progress = StartProgress(patterns)
    begin = None
    seconds = 0.0
    for line in lines:
        if line.timestamp is not None:
            begin = begin or line.timestamp
            seconds = (line.timestamp - begin).total_seconds()
        progress.feed(line, seconds)
    return progress


def _first_of_all(times: Counter[str], rank: str) -> bool:
    """Count one more for this rank: is it the first that comes so far?"""
    before = max(times.values(), default=0)
    times[rank] += 1
    return times[rank] > before


class _Bars:
    """Progress bars of one pass, several where several ranks draw one.

    The bars of the replicas of a data-parallel server have no tags and follow
    each other in any order, so a state belongs to the bar that is nearest below
    it, and one that is below all of them to another bar.
    """

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._done: dict[str, list[int]] = {}

    def take(self, rank: str, done: int, total: int) -> None:
        if total <= 0:
            return
        if self._total.get(rank) != total:
            self._total[rank], self._done[rank] = total, []
        bars = self._done[rank]
        below = [at for at in bars if at < done]
        if below:
            bars.remove(max(below))
        if below or done not in bars:
            bars.append(min(done, total))

    @property
    def slowest(self) -> Progress | None:
        bars = [Progress(min(bars), self._total[rank]) for rank, bars in self._done.items()]
        return min(bars, key=lambda bar: bar.share, default=None)
