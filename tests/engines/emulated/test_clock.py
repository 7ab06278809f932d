"""Virtual time: fast while a server starts, real while it serves."""

from __future__ import annotations

import time

import pytest

from sweeper.engines.emulated.clock import Clock


def test_it_runs_as_many_times_faster_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock.start(300)
    now[0] += 1.0
    assert clock.now() == pytest.approx(300)
    assert clock.until(330) == pytest.approx(0.1)
    assert clock.until(10) == 0
    assert clock.wait(5) == pytest.approx(5 / 300)


def test_when_it_runs_in_real_time_the_timestamps_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock.start(10)
    now[0] += 2.0
    clock.run_in_real_time()
    now[0] += 3.0
    assert clock.now() == pytest.approx(23)
    assert clock.wait(5) == pytest.approx(0.5)  # the engine's own waits stay short


def test_a_stamp_is_the_launch_and_what_has_passed() -> None:
    clock = Clock(launched=time.mktime((2026, 12, 1, 6, 32, 31, 0, 0, -1)), real=time.monotonic())
    assert clock.stamp() == "2026-12-01 06:32:31"
    clock.virtual = 313.5
    assert clock.stamp(milliseconds=True).startswith("2026-12-01 06:37:44.5")


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_must_be_a_positive_number(speed: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Clock.start(speed)
