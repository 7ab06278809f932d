"""How a start fails, hangs, or leaves processes: each fault as a real process."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from emulated_process import (
    READY,
    Emulated,
    Outcome,
    last_words,
    moves,
    stage_of,
    start,
    wait_until,
)

from sweeper.engines.emulated.faults import Fault, catalog

ENDING = [
    fault
    for fault in catalog().values()
    if fault.stage not in ("load", "ready") and fault.exit_status is not None
]
HANGING = [fault for fault in catalog().values() if fault.how == "hangs"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every fault that ends a start, run side by side."""
    folder = tmp_path_factory.mktemp("faults")

    def run(fault: Fault) -> Outcome:
        one = start(folder, "--tp-size", "4", EMULATED_FAULT=fault.name)
        try:
            return Outcome(one.ended(), one.text, len(one.left))
        finally:
            one.server.stop(grace=0.0)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip((fault.name for fault in ENDING), pool.map(run, ENDING), strict=True))


@pytest.mark.parametrize("fault", ENDING, ids=lambda fault: fault.name)
def test_a_fault_of_the_start(fault: Fault, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[fault.name]
    assert outcome.status == fault.exit_status, outcome.text
    assert last_words(fault.text) in outcome.text
    assert (READY in outcome.text) == (fault.how == "port_stolen")
    # The one that took the port is another's process, and stays.
    assert outcome.left == (1 if fault.how == "port_stolen" else 0)


def test_the_words_around_a_failure_are_those_of_sglang(outcomes: dict[str, Outcome]) -> None:
    text = outcomes["oom_weights"].text
    assert re.search(r"^\[[\d :-]+ TP2\] Scheduler hit an exception: Traceback", text, re.M)
    assert "Received sigquit from a child process. It usually means the child failed." in text
    killed = outcomes["rank_killed_start"].text
    assert "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9)." in killed
    stolen = outcomes["port_stolen"].text
    assert "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1'" in stolen


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Emulated]]:
    """Every fault that hangs the start, side by side, each when nothing moves in it any more."""
    folder = tmp_path_factory.mktemp("hangs")
    found = {
        fault.name: start(folder, "--tp-size", "2", EMULATED_FAULT=fault.name) for fault in HANGING
    }
    for fault in HANGING:
        one = found[fault.name]
        if fault.stage == "arguments":
            one.wait_for("launch_server.py:71")
        elif fault.stage == "warm_up":
            one.wait_for("GET /model_info")
        else:
            wait_until(lambda one=one: len(one.left) == 3, 20)  # type: ignore[misc]
    wait_until(lambda: moves(found.values()) == [], 20)
    yield found
    for one in found.values():
        one.server.stop(grace=0.0)


@pytest.mark.parametrize("fault", HANGING, ids=lambda fault: fault.name)
def test_a_hang_moves_nothing_until_it_is_killed(
    fault: Fault, hanging: dict[str, Emulated]
) -> None:
    one = hanging[fault.name]
    assert one.server.exit_status is None
    assert READY not in one.text
    stages = [stage for stage in map(stage_of, re.split(r"[\r\n]", one.text)) if stage]
    reached = {
        "arguments": "starting",
        "distributed": "distributed init",
        "weights": "loading weights",
        "memory_pool": "memory pool",
        "graph_capture": "capturing graphs",
        "warm_up": "warm-up",
    }
    assert stages[-1] == reached[fault.stage]


def test_in_a_warm_up_that_hangs_only_health_tells(hanging: dict[str, Emulated]) -> None:
    one = hanging["hang_warmup"]
    assert httpx.get(f"{one.url}/health").status_code == 503
    assert httpx.get(f"{one.url}/model_info").status_code == 200


def test_before_the_death_link_a_killed_launcher_leaves_schedulers_that_go_on(
    emulated: Callable[..., Emulated],
) -> None:
    # Two thirds of a second from their start to the death link.
    one = emulated("--tp-size", "2", EMULATED_START_SPEED="3")
    wait_until(lambda: len(one.left) == 3, 20)
    os.kill(one.server.popen.pid, signal.SIGTERM)
    assert one.ended(2) == -signal.SIGTERM  # no handler while it loads: 143 in a shell
    one.wait_for("Load weight begin", 20)
    assert len(one.left) == 3
    assert {process.ppid() for process in one.left} != {one.server.popen.pid}


@pytest.mark.parametrize(
    ("fault", "stay"), [("", 0), ("orphaned_scheduler", 3), ("leaked_children", 2)]
)
def test_what_stays_of_a_ready_server_that_is_killed(
    fault: str, stay: int, emulated: Callable[..., Emulated]
) -> None:
    one = emulated("--tp-size", "2", EMULATED_FAULT=fault)
    one.wait_for(READY)
    os.kill(one.server.popen.pid, signal.SIGKILL)
    one.ended(2)
    wait_until(lambda: len(one.left) <= stay, 5)
    time.sleep(0.1)
    assert len(one.left) == stay


def test_a_stranger_answers_on_a_stolen_port(emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT="port_stolen")
    assert one.ended() == 3
    assert httpx.get(f"{one.url}/health").status_code == 200
    names = [model["id"] for model in httpx.get(f"{one.url}/v1/models").json()["data"]]
    assert names == ["another-server"]


def test_health_that_lies_is_green_while_weights_load(emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT="health_lies", EMULATED_START_SPEED="10")
    one.wait_for("Load weight begin")
    assert httpx.get(f"{one.url}/health").status_code == 200
    assert httpx.post(f"{one.url}/generate", json={"text": "The"}).status_code == 503
    assert READY not in one.text
