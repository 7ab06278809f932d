"""What happens when a trial is asked for, has passed a rung, or has ended.

The director sits between Ray Tune, which runs trials, and Optuna, which
decides about them. It is the only one that writes the beginning and the end of
a trial into the log, so a trial has one final state, written once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sweeper.engines.sglang.failures import failures
from sweeper.records.events import Event, Failure, TrialEnded, TrialRetried, TrialStarted
from sweeper.records.log import EventLog
from sweeper.records.masking import mask_mapping
from sweeper.search.objectives import objective_values, score, violations
from sweeper.search.study import Proposal, SweepStudy
from sweeper.spec.candidate import Candidate
from sweeper.spec.schema import SpaceFile

# A full disk or a lost GPU spoils every trial to come. The night is better spent on nothing.
_SPOILED = 3


class Answer(Enum):
    """Why there is no proposal."""

    WAIT = "wait"
    FINISHED = "finished"


@dataclass(frozen=True)
class RungResult:
    """What a worker says after each rung, and at the end.

    Args:
        levels: metrics by concurrency, of all levels so far.
        done: whether the trial is over.
        failure: why there is no result.
        interrupted: it was asked to stop.
    """

    levels: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    done: bool = False
    failure: Failure | None = None
    interrupted: bool = False


@dataclass(frozen=True)
class Attempt:
    """A trial to run, for the first time or again.

    Args:
        proposal: its candidate.
        number: how often its worker died before.
    """

    proposal: Proposal
    number: int = 0


@dataclass
class _Running:
    attempt: Attempt
    last: RungResult = field(default_factory=RungResult)
    rung: int = 0
    pruned: bool = False

    @property
    def proposal(self) -> Proposal:
        return self.attempt.proposal


class Director:
    """The rules of a sweep. One thread calls it; ``reason`` may be read from any."""

    def __init__(
        self,
        space: SpaceFile,
        study: SweepStudy,
        log: EventLog,
        *,
        stop_requested: Callable[[], bool],
        worker_died: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._space = space
        self._study = study
        self._log = log
        self._stop_requested = stop_requested
        self._worker_died = worker_died
        self._clock = clock
        self._started = clock()
        self._running: dict[str, _Running] = {}
        self._again: list[Attempt] = []
        self._unwritable = ""
        self._proposed = 0
        self._spoiled: list[str] = []
        self.reason = "all trials were run"

    def propose(self, key: str) -> Attempt | Answer:
        """The next trial, known from now on by ``key``; or why there is none."""
        search = self._space.search
        if self._stop_requested():
            return self._finished("it was asked to stop")
        if self._unwritable:
            return self._finished(f"the record cannot be written: {self._unwritable}")
        if search.time_budget and self._clock() - self._started > search.time_budget:
            return self._finished("the time budget is used up")
        if self._again:
            attempt = self._again.pop(0)
            self._running[key] = _Running(attempt)
            return attempt
        if len(self._spoiled) >= _SPOILED:
            kinds = ", ".join(dict.fromkeys(self._spoiled))
            return self._finished(
                f"{_SPOILED} trials in a row failed by the machine's fault ({kinds})"
            )
        if self._proposed > search.trials:  # the baseline is one more
            # A worker may still die, and its trial be run once more.
            return Answer.WAIT if self._running else Answer.FINISHED
        # The baseline runs alone: every later trial is compared with it.
        limit = search.parallel if self._proposed > 1 else 1
        if len(self._running) >= limit:
            return Answer.WAIT
        proposal = self._study.propose()
        if proposal is None:
            if self._running:
                return Answer.WAIT
            return self._finished("every candidate of the space was tried")
        self._proposed += 1
        self._running[key] = _Running(attempt := Attempt(proposal))
        self._write(
            TrialStarted(
                trial=proposal.number,
                baseline=proposal.baseline,
                values=mask_mapping(proposal.candidate.values),
                label=Candidate(mask_mapping(proposal.candidate.values)).label(),
            )
        )
        return attempt

    def rung(self, key: str, result: RungResult) -> bool:
        """Take a rung's result; True when the trial must stop here."""
        running = self._running.get(key)
        if running is None or running.pruned:
            return True  # Ray shows the last result once more when it stops a trial
        running.last = result
        if result.done or result.failure or result.interrupted:
            return False  # the worker ends by itself
        found = score(self._space.objectives, result.levels)
        rung, running.rung = running.rung, running.rung + 1
        if found is not None:
            running.pruned = self._study.report(running.proposal.number, rung, found)
        return running.pruned

    def end(self, key: str, error: str | None = None) -> None:
        """Write the final word on a trial. Later calls for the same trial do nothing.

        Args:
            key: as given to :meth:`propose`.
            error: what Ray says, when the worker itself died.
        """
        running = self._running.pop(key, None)
        if running is None:
            return
        event = self._verdict(running, error)
        if self._try_again(running, event):
            return
        number, last = running.proposal.number, running.last
        if event.failure and event.failure.blame == "machine":
            self._spoiled.append(event.failure.kind)
        else:
            self._spoiled.clear()
        if event.state in ("complete", "infeasible") and event.score is not None:
            broken = violations(self._space.constraints, last.levels)
            self._study.complete(number, event.score, broken)
        elif event.state == "pruned":
            self._study.prune(number)
        elif event.failure and event.failure.blame == "configuration":
            self._study.avoid(number)
        else:
            self._study.fail(number)
        self._write(event)

    def end_all(self) -> None:
        """End what is still open: it was interrupted."""
        for attempt in self._again:
            self._running[f"again {attempt.proposal.number}"] = _Running(attempt)
        self._again.clear()
        for key, running in list(self._running.items()):
            running.last = RungResult(running.last.levels, interrupted=True)
            self.end(key)

    def _try_again(self, running: _Running, event: TrialEnded) -> bool:
        """Whether a trial whose worker died is run once more. Its server is ended first."""
        if event.failure is None or event.failure.kind != "worker_died":
            return False
        self._worker_died(running.proposal.number)
        number = running.attempt.number + 1
        if number > self._space.engine.start.retries:
            return False
        trial = running.proposal.number
        self._write(TrialRetried(trial=trial, attempt=number, failure=event.failure))
        self._again.append(Attempt(running.proposal, number))
        return True

    def _verdict(self, running: _Running, error: str | None) -> TrialEnded:
        last, number = running.last, running.proposal.number
        found = score(self._space.objectives, last.levels)
        values = objective_values(self._space.objectives, last.levels)
        known: dict[str, Any] = {"trial": number, "values": values}
        if last.failure:
            return TrialEnded(state="failed", failure=last.failure, **known)
        if last.interrupted or (error and self._stop_requested()):
            return TrialEnded(state="interrupted", **known)
        if error:
            died = failures()["worker_died"]
            failure = Failure(kind=died.kind, what=error, blame=died.blame, advice=died.advice)
            return TrialEnded(state="failed", failure=failure, **known)
        if running.pruned:
            return TrialEnded(state="pruned", score=found, **known)
        missing = [o.metric for o in self._space.objectives if o.metric not in values]
        if not last.done or missing or found is None or not math.isfinite(found):
            what = f"not measured: {', '.join(missing)}" if missing else "the trial has no score"
            return TrialEnded(state="failed", failure=Failure(kind="no_result", what=what), **known)
        broken = [
            text
            for text, over in violations(self._space.constraints, last.levels).items()
            if over > 0
        ]
        return TrialEnded(
            state="infeasible" if broken else "complete",
            score=found,
            broken_constraints=broken,
            **known,
        )

    def _write(self, event: Event) -> None:
        """Into the log. Without it nothing more may run, since nothing more would be known."""
        try:
            self._log.append(event)
        except OSError as error:
            self._unwritable = str(error)

    def _finished(self, reason: str) -> Answer:
        self.reason = reason
        return Answer.FINISHED
