"""A trial as Ray Tune runs it: one step is one rung."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray import tune

from sweeper.search.bridge import pack
from sweeper.search.plan import Plan
from sweeper.search.trial import TrialRun
from sweeper.spec.candidate import Candidate


class SweepTrainable(tune.Trainable):
    """Runs in a worker process of Ray, which later trials use again."""

    def setup(self, config: dict[str, Any], plan: list[Any]) -> None:
        """Take the plan out of Ray's memory; ``plan`` is a list of one reference to it."""
        self._plan: Plan = ray.get(plan[0])
        self._begin(config)

    def step(self) -> dict[str, Any]:
        return pack(self._run.next_rung())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        # A pruned trial's server still runs: Ray only stops asking for steps.
        self._run.close()
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._run.close()

    def _begin(self, config: dict[str, Any]) -> None:
        self._run = TrialRun(
            self._plan,
            config["trial"],
            Candidate(config["candidate"]),
            worker_env=dict(os.environ),
            gpus=[str(gpu) for gpu in ray.get_gpu_ids()],
            attempt=config["attempt"],
        )
