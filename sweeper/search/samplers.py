"""Optuna's samplers and pruners by the names that the file uses."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from sweeper.errors import InputError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

    from sweeper.spec.schema import Search


def make_sampler(search: Search) -> BaseSampler:
    """The sampler that the file asks for, seeded.

    Raises:
        InputError: arguments that this sampler does not take.
    """
    import optuna.samplers as s

    classes: dict[str, type[BaseSampler]] = {
        "tpe": s.TPESampler,
        "gp": s.GPSampler,
        "random": s.RandomSampler,
        "qmc": s.QMCSampler,
        "nsga2": s.NSGAIISampler,
        "brute_force": _brute_force(),
    }
    defaults: dict[str, Any] = {"seed": search.seed}
    if search.sampler.name == "tpe":
        # Switches interact, and children exist only under some parents: sample them
        # together, group by group. A sweep is short, since a trial is dear, so the
        # random start is shorter than Optuna's ten trials too.
        defaults |= {
            "multivariate": True,
            "group": True,
            "constant_liar": search.parallel > 1,
            "n_startup_trials": min(10, max(3, search.trials // 4)),
        }
    kind = classes[search.sampler.name]
    sampler: BaseSampler = _make(kind, defaults, search.sampler.args, "search.sampler.args")
    return sampler


def _brute_force() -> type[BaseSampler]:
    import optuna.samplers as s

    class BruteForceSampler(s.BruteForceSampler):
        """Optuna's, less its call of ``Study.stop``, which only ``optimize`` understands.

        It makes that call when every point was tried, and here the study sees
        for itself that nothing untried is left.
        """

        def after_trial(self, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(RuntimeError):
                super().after_trial(*args, **kwargs)

    return BruteForceSampler


def make_pruner(search: Search) -> BasePruner:
    """The pruner that the file asks for. Its steps are rungs: 0 is the single stream.

    Raises:
        InputError: arguments that this pruner does not take, or lacks.
    """
    import optuna.pruners as p

    classes: dict[str, type[BasePruner]] = {
        "median": p.MedianPruner,
        "percentile": p.PercentilePruner,
        "successive_halving": p.SuccessiveHalvingPruner,
        "hyperband": p.HyperbandPruner,
        "threshold": p.ThresholdPruner,
        "none": p.NopPruner,
    }
    defaults: dict[str, Any] = {}
    if search.pruner.name == "median":
        defaults = {"n_startup_trials": 4}
    elif search.pruner.name == "percentile":
        defaults = {"n_startup_trials": 4, "percentile": 25.0}
    kind = classes[search.pruner.name]
    pruner: BasePruner = _make(kind, defaults, search.pruner.args, "search.pruner.args")
    return pruner


def _make(kind: type[Any], defaults: dict[str, Any], args: dict[str, Any], where: str) -> Any:
    import inspect

    allowed = [name for name in inspect.signature(kind).parameters if name != "self"]
    try:
        with warnings.catch_warnings():
            # Optuna calls some of these options experimental, which its exact pin makes harmless.
            warnings.simplefilter("ignore")
            return kind(**{**defaults, **args})
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{kind.__name__}: {error}",
            where=where,
            advice="It takes: " + (", ".join(allowed) or "no arguments"),
        ) from None
