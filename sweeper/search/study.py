"""The one Optuna study of a sweep: propose, report, prune, tell.

Every proposal is a candidate that is allowed and was not tried before. What
Optuna is told is what happened: a pruned trial as pruned, one that the machine
spoiled as failed, one that cannot run as not feasible, a complete one with its
score and by how much it broke each constraint.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.search import candidates as c
from sweeper.search.samplers import make_pruner, make_sampler
from sweeper.spec.candidate import Candidate, Value
from sweeper.spec.parameters import Parameter
from sweeper.spec.rules import can_take, parameters
from sweeper.spec.schema import SpaceFile

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

# Optuna proposes the same point again where it likes it best. After so many
# proposals that cannot be used, the nearest one that can is taken.
_ASKS = 5
# The constraint that every server starts and serves, broken by those that do not.
_RUNS = "runs"


@dataclass(frozen=True)
class Proposal:
    """A candidate to try.

    Args:
        number: the trial's number in the records; the baseline is 0.
        candidate: its switches.
        baseline: whether it is the one that the others are compared with.
    """

    number: int
    candidate: Candidate
    baseline: bool


class SweepStudy:
    """Proposes candidates and learns from their scores. Holds no process and no clock."""

    def __init__(self, space: SpaceFile, device: str, journal: Path | None) -> None:
        """Open the study in Optuna's journal file, new or as it was left; None: in memory.

        Raises:
            InputError: arguments that the sampler or the pruner does not take.
        """
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._device = device
        self._parameters = parameters(space)
        self._rng = random.Random(space.search.seed)
        self._tried: set[str] = set()
        self._first = list(space.search.first)
        self._open: dict[int, optuna.Trial | None] = {}
        self._next = 0
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(journal))) if journal else None,
            study_name=space.name,
            sampler=make_sampler(space.search),
            pruner=make_pruner(space.search),
            direction="maximize",
            load_if_exists=True,
        )

    def propose(self) -> Proposal | None:
        """The next candidate: the baseline, those named in the file, then the sampler's.

        None when nothing untried is left.
        """
        if self._next == 0:
            base = c.by_hand(self._space.baseline, self._parameters, self._device)
            return self._take(self._ask_for(base), base, baseline=True)
        while self._first:
            named = c.by_hand(self._first.pop(0), self._parameters, self._device)
            if self._usable(named):
                return self._take(self._ask_for(named), named)
        for _ in range(_ASKS):
            trial = self._study.ask()
            candidate = self._suggest(trial)
            if self._usable(candidate):
                return self._take(trial, candidate)
            self._reject(trial)
        near = c.nearest(candidate, self._parameters, self._device, self._usable, self._rng)
        return self._take(self._ask_for(near), near) if near else None

    def report(self, number: int, rung: int, score: float) -> bool:
        """Report the score after a rung; whether the pruner drops the trial. Never the baseline."""
        trial = self._open[number]
        if trial is None:
            return False
        trial.report(score, step=rung)
        return number != 0 and trial.should_prune()

    def complete(self, number: int, score: float, violations: Mapping[str, float]) -> None:
        """Tell the final score, and by how much each constraint is broken."""
        trial = self._open.pop(number)
        if trial is None:
            return
        for name, value in violations.items():
            trial.set_constraint(name, min(value, 1e9))  # the journal holds no infinity
        self._study.tell(trial, score)

    def prune(self, number: int) -> None:
        """Tell that the trial was stopped by the pruner; its last report counts."""
        self._end(number, "PRUNED")

    def avoid(self, number: int) -> None:
        """Tell that the configuration does not run, so that the sampler keeps away from its like.

        Optuna's samplers do not look at failed trials. They do look at what is not
        feasible, and that a pruned trial may be as well.
        """
        if (trial := self._open.get(number)) is not None:
            trial.set_constraint(_RUNS, 1.0)
        self._end(number, "PRUNED")

    def fail(self, number: int) -> None:
        """Tell that there is no result, and nothing to learn."""
        self._end(number, "FAIL")

    def _end(self, number: int, state: str) -> None:
        import optuna

        if (trial := self._open.pop(number)) is not None:
            self._study.tell(trial, state=optuna.trial.TrialState[state])

    def _usable(self, candidate: Candidate) -> bool:
        return candidate.key() not in self._tried and not c.forbidden(
            candidate, self._space.space.forbid, self._device
        )

    def _suggest(self, trial: optuna.Trial) -> Candidate:
        return c.build(self._parameters, self._device, lambda n, p: _suggest(trial, n, p))

    def _ask_for(self, candidate: Candidate) -> optuna.Trial | None:
        """A trial of the study with exactly these values.

        A baseline may hold values that are no choices of the space; those are
        left out, and the sampler does not learn from them. The brute-force sampler
        stumbles over trials with parameters left out, so for it there is none.
        """
        inside = {
            name: value
            for name, value in candidate.values.items()
            if can_take(self._parameters[name], value)
        }
        if len(inside) < len(candidate.values) and self._space.search.sampler.name == "brute_force":
            return None
        self._study.enqueue_trial(
            {name: c.encode(self._parameters[name], value) for name, value in inside.items()}
        )
        trial = self._study.ask()
        for name in inside:
            _suggest(trial, name, self._parameters[name])
        return trial

    def _take(
        self, trial: optuna.Trial | None, candidate: Candidate, baseline: bool = False
    ) -> Proposal:
        proposal = Proposal(self._next, candidate, baseline)
        if trial is not None:
            trial.set_user_attr("trial", self._next)
        self._open[self._next] = trial
        self._tried.add(candidate.key())
        self._next += 1
        return proposal

    def _reject(self, trial: optuna.Trial) -> None:
        import optuna

        trial.set_user_attr("rejected", "tried before or forbidden; nothing was started")
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _suggest(trial: optuna.Trial, name: str, parameter: Parameter) -> Value:
    found: Value
    if parameter.choices is not None:
        found = trial.suggest_categorical(name, [c.encode(parameter, v) for v in parameter.choices])
    elif (span := parameter.int_range) is not None:
        found = trial.suggest_int(name, span.low, span.high, step=span.step, log=span.log)
    else:
        assert parameter.float_range is not None
        wide = parameter.float_range
        found = trial.suggest_float(name, wide.low, wide.high, step=wide.step, log=wide.log)
    return c.decode(parameter, found)
