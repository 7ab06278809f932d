"""What happens when somebody else is on the GPUs."""

from __future__ import annotations

import pytest

from sweeper.errors import MachineError
from sweeper.machine.gpu_processes import GpuUser
from sweeper.search.gpu_gate import wait_until_free
from sweeper.spec.schema import Gpus

THEIRS = GpuUser(3, 4711, "ann", "python train.py", 80 << 30)
OURS = GpuUser(3, 4712, "me", "sglang::scheduler", 80 << 30, tag="sweeper-0001-abc")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_free_gpus_cost_nothing() -> None:
    clock = Clock()
    wait_until_free(list, Gpus(), clock=clock, sleep=clock.sleep)
    assert clock.now == 0


def test_it_is_refused_with_names() -> None:
    with pytest.raises(MachineError, match=r"GPU 3: 80\.0 GiB, process 4711 \(ann, python train"):
        wait_until_free(lambda: [THEIRS], Gpus())


def test_leftovers_of_ours_lead_to_the_doctor() -> None:
    with pytest.raises(MachineError) as caught:
        wait_until_free(lambda: [OURS], Gpus())
    assert "doctor" in str(caught.value)


def test_it_waits_and_says_so_once() -> None:
    clock, said = Clock(), list[str]()
    answers = [[THEIRS], [THEIRS], [THEIRS], []]
    policy = Gpus(when_busy="wait", wait_for=60)
    wait_until_free(lambda: answers.pop(0), policy, clock=clock, sleep=clock.sleep, say=said.append)
    assert len(said) == 1
    assert "4711" in said[0]


def test_waiting_has_an_end() -> None:
    clock = Clock()
    policy = Gpus(when_busy="wait", wait_for=60)
    with pytest.raises(MachineError, match="after 60 s"):
        wait_until_free(lambda: [THEIRS], policy, clock=clock, sleep=clock.sleep)


def test_a_stop_ends_the_waiting() -> None:
    clock = Clock()
    policy = Gpus(when_busy="wait", wait_for=1000)
    wait_until_free(
        lambda: [THEIRS], policy, stop=lambda: clock.now > 5, clock=clock, sleep=clock.sleep
    )
    assert clock.now < 10
