"""Made-up sweeps, told by events as a real one would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweeper.records import events as ev
from sweeper.records.sweep import Sweep, replay

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Story:
    """Events one after the other. Each trial takes 100 s: 60 to start, 2 to stop."""

    def __init__(self, **changes: Any) -> None:
        self.now = BEGIN
        fields: dict[str, Any] = {
            "sweep": "nccl",
            "trials": 3,
            "model": "embedded",
            "model_description": "SmolLM2-135M, real weights",
            "engine": "sglang",
            "engine_version": "0.5.23",
            "device": "cuda",
            "levels": [1, 8],
            "objectives": [{"metric": "single_stream", "goal": "maximize", "weight": 1.0}],
        }
        self.events: list[ev.AnyEvent] = [ev.SweepStarted(time=BEGIN, **{**fields, **changes})]

    def start(self, number: int, label: str = "", **changes: Any) -> Story:
        """A trial begins and its server is launched."""
        label = label or ("engine defaults" if number == 0 else f"NCCL_NTHREADS={number}")
        values = changes.pop("values", {})
        self._add(
            ev.TrialStarted(
                time=self.now, trial=number, baseline=number == 0, values=values, label=label
            )
        )
        self._add(
            ev.ServerLaunched(
                time=self.now,
                trial=number,
                pid=1,
                tag="t",
                port=40000,
                command=["/usr/bin/python3", "-m", "sglang.launch_server"],
                env={"A": "1"},
                log=f"trials/{number:04d}/server.log",
            )
        )
        return self

    def level(self, number: int, concurrency: int, speed: float | None, **changes: Any) -> Story:
        """A level of 10 s after 1 s of warming up; no speed where none was measured."""
        metrics = {} if speed is None else {"output_throughput": speed, "ttft_p50_ms": 210.4}
        metrics.update(changes.pop("metrics", {}))
        fields = {"requests": 16, "failed_requests": 0, "seconds": 10.0, "warmup_seconds": 1.0}
        self._add(
            ev.LevelMeasured(
                time=self.now,
                trial=number,
                concurrency=concurrency,
                metrics=metrics,
                **{**fields, **changes},
            )
        )
        return self

    def end(self, number: int, state: str = "complete", **changes: Any) -> Story:
        """A trial ends, 100 s after it began."""
        self.now += timedelta(seconds=100)
        self._add(ev.TrialEnded(time=self.now, trial=number, state=state, **changes))  # type: ignore[arg-type]
        return self

    def trial(
        self,
        number: int,
        speeds: Mapping[int, float],
        score: float,
        label: str = "",
        **metrics: float,
    ) -> Story:
        """A trial that goes through."""
        self.start(number, label)
        self._add(ev.ServerReady(time=self.now, trial=number, start_seconds=60.0))
        for concurrency, speed in speeds.items():
            self.level(number, concurrency, speed, metrics=metrics)
        self._add(ev.ServerStopped(time=self.now, trial=number, stop_seconds=2.0, exit_status=0))
        return self.end(number, score=score)

    def failed(self, number: int, label: str = "", kind: str = "oom", **changes: Any) -> Story:
        """A trial whose server does not start."""
        fields = {"what": "no memory left", "blame": "configuration", "stage": "loading weights"}
        failure = ev.Failure(kind=kind, **{**fields, **changes})
        return self.start(number, label).end(number, "failed", failure=failure)

    def over(self, reason: str = "all trials ran") -> Story:
        self._add(ev.SweepEnded(time=self.now, reason=reason))
        return self

    def _add(self, event: ev.AnyEvent) -> None:
        self.events.append(event)

    @property
    def sweep(self) -> Sweep:
        return replay(self.events)


@pytest.fixture
def story() -> Callable[..., Story]:
    return Story


@pytest.fixture
def whole() -> Story:
    """Four trials: the baseline, a better one, a worse one, and a fast one that failed."""
    return (
        Story()
        .trial(0, {1: 50.0, 8: 200.0}, 1.0)
        .trial(1, {1: 40.0, 8: 190.0}, 0.87, label="worse")
        .trial(2, {1: 55.0, 8: 198.0}, 1.04, label="better")
        .start(3, "fast but dead")
        .level(3, 1, 500.0)
        .level(3, 8, 5000.0)
        .end(3, "failed", score=99.0, failure=ev.Failure(kind="oom", what="no memory left"))
        .over()
    )
