"""Ray Tune's two hooks, both handing over to the director.

Ray's own OptunaSearch never prunes, keeps its study in memory and tells a
stopped trial as complete. Here one study decides about both: what is tried next
(:class:`StudySearcher`) and what is stopped early (:class:`RungScheduler`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeper.records.events import Failure
from sweeper.search.director import Answer, Director, RungResult

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

# The keys of the result that a worker reports; Ray adds many of its own.
REPORT = "sweeper_report"


def pack(result: RungResult) -> dict[str, Any]:
    """A worker's result as Ray carries it: one text, which Ray cannot flatten or lose."""
    text = json.dumps(
        {
            "levels": {str(level): dict(metrics) for level, metrics in result.levels.items()},
            "done": result.done,
            "interrupted": result.interrupted,
            "failure": result.failure.model_dump() if result.failure else None,
        }
    )
    return {REPORT: text, "done": result.done}


def unpack(report: dict[str, Any]) -> RungResult:
    """The result as the worker gave it."""
    data = json.loads(report[REPORT])
    return RungResult(
        levels={int(level): metrics for level, metrics in data["levels"].items()},
        done=data["done"],
        interrupted=data["interrupted"],
        failure=Failure.model_validate(data["failure"]) if data["failure"] else None,
    )


class _NotInFiles:
    """Keeps the director out of the files that Tune pickles its parts into.

    It knows the space, secrets included. Those files are never read again: the
    study is in Optuna's journal, and the truth in the log.
    """

    _director: Director

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_director"}


class StudySearcher(_NotInFiles, Searcher):
    """Asks the director for candidates."""

    def __init__(self, director: Director) -> None:
        # Ray wants a metric; the director alone knows what counts.
        super().__init__(metric="training_iteration", mode="max")
        self._director = director

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """A configuration, None for "not now", or the word for "no more"."""
        attempt = self._director.propose(trial_id)
        if attempt is Answer.FINISHED:
            return str(Searcher.FINISHED)
        if isinstance(attempt, Answer):
            return None
        proposal = attempt.proposal
        return {
            "trial": proposal.number,
            "attempt": attempt.number,
            "candidate": dict(proposal.candidate.values),
        }

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,  # noqa: ARG002
        error: bool = False,
    ) -> None:
        """Close the trial. Ray calls this after stops by the scheduler too."""
        self._director.end(trial_id, "the trial's worker process died" if error else None)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the study is in Optuna's journal, and the truth in the log."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, for the same reason."""


class RungScheduler(_NotInFiles, FIFOScheduler):
    """Stops a trial after a rung when the director says so."""

    # Every result decides, so none may wait in a buffer for the next.
    _supports_buffered_results = False

    def __init__(self, director: Director) -> None:
        super().__init__()
        self._director = director

    def on_trial_result(
        self,
        tune_controller: Any,  # noqa: ARG002
        trial: Trial,
        result: dict[str, Any],
    ) -> str:
        """Whether the trial goes on after this rung."""
        stop = self._director.rung(trial.trial_id, unpack(result))
        return str(TrialScheduler.STOP if stop else TrialScheduler.CONTINUE)

    def on_trial_complete(
        self,
        tune_controller: Any,  # noqa: ARG002
        trial: Trial,
        result: dict[str, Any],
    ) -> None:
        """Take the last result of a trial."""
        # A result that says "done" comes here and never to on_trial_result.
        if REPORT in result:
            self._director.rung(trial.trial_id, unpack(result))
