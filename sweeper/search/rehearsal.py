"""The search played through on paper, so that its faults show before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.errors import InputError
from sweeper.search.study import SweepStudy
from sweeper.spec.problems import Problem
from sweeper.spec.schema import SpaceFile

# More than any sampler's random start, and still a fraction of a second.
_PROPOSALS = 14


def rehearse(space: SpaceFile, device: str) -> Iterator[Problem]:
    """What goes wrong with the sampler, the pruner or the space when candidates are proposed.

    Optuna looks at many arguments only when it uses them, which in a sweep is
    after the first hour.
    """
    try:
        study = SweepStudy(space, device, None)
    except InputError as error:
        yield Problem(tuple((error.where or "search").split(".")), error.what, error.advice or "")
        return
    try:
        for step in range(min(_PROPOSALS, space.search.trials + 1)):
            proposal = study.propose()
            if proposal is None:
                if step == 1:
                    what = "nothing is left to try beside the baseline"
                    yield Problem(("space",), what, "Give more choices, or forbid less.")
                return
            value = 1.0 + step % 3
            study.report(proposal.number, 0, value)
            study.complete(proposal.number, value, {})
    except Exception as error:
        # Whatever Optuna raises for an argument that it took at first.
        yield Problem(
            ("search",),
            f"Optuna cannot search like this: {type(error).__name__}: {error}",
            f"Look at the arguments of {space.search.sampler.name} and {space.search.pruner.name}.",
        )
