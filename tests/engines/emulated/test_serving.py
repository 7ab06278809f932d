"""The life of a server that is ready: requests, failures under load, the stop."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from emulated_process import READY, Emulated, Outcome, last_words, start

from sweeper.engines.emulated.faults import Fault, catalog

ENDING = [
    fault for fault in catalog().values() if fault.stage == "load" and fault.exit_status is not None
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every fault that ends a server at its second request, run side by side."""
    folder = tmp_path_factory.mktemp("faults")

    def ask(one: Emulated) -> None:
        body = {"text": "The", "sampling_params": {"max_new_tokens": 2}}
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{one.url}/generate", json=body, timeout=20)

    def run(fault: Fault) -> Outcome:
        one = start(folder, "--tp-size", "4", EMULATED_FAULT=fault.name, EMULATED_FAULT_AT="2")
        try:
            one.wait_for(READY)
            ask(one)
            assert one.server.exit_status is None
            ask(one)
            return Outcome(one.ended(), one.text, len(one.left))
        finally:
            one.server.stop(grace=0.0)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip((fault.name for fault in ENDING), pool.map(run, ENDING), strict=True))


@pytest.mark.parametrize("fault", ENDING, ids=lambda fault: fault.name)
def test_a_fault_under_load(fault: Fault, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[fault.name]
    assert outcome.status == fault.exit_status, outcome.text
    assert last_words(fault.text) in outcome.text
    silent = fault.how == "dies"
    assert ("SIG" in outcome.text) != silent
    assert outcome.left == 0


def test_the_watchdogs_of_sglang_and_pytorch(outcomes: dict[str, Outcome]) -> None:
    text = outcomes["watchdog_timeout"].text
    assert "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)" in text
    text = outcomes["nccl_collective_timeout"].text
    assert re.search(r"Subprocess scheduler_3 \(pid=\d+\) crashed with exit code -6\.", text)
    text = outcomes["rank_killed_load"].text
    assert re.search(r"Subprocess scheduler_1 \(pid=\d+\) crashed with exit code -9\.", text)
    assert "NVRM: Xid" in outcomes["gpu_lost"].text


def test_a_zombie_answers_and_is_not_healthy(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2", EMULATED_FAULT="zombie", EMULATED_FAULT_AT="1")
    one.wait_for(READY)
    before = one.text.count("\n")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{one.url}/generate", json={"text": "The"}, timeout=0.5)
    assert httpx.get(f"{one.url}/model_info").status_code == 200
    assert httpx.get(f"{one.url}/health").status_code == 503
    assert one.server.exit_status is None
    # Nothing is said but that requests were answered.
    assert all("HTTP/1.1" in line for line in one.text.splitlines()[before:])


def test_a_start_a_request_and_a_stop(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2")
    one.wait_for(READY)
    assert httpx.get(f"{one.url}/health").status_code == 200
    body = {"text": "The", "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
    answer = httpx.post(f"{one.url}/generate", json=body, timeout=10).json()
    assert answer["meta_info"]["completion_tokens"] == 8
    assert " TP0] Prefill batch, #new-seq: 1" in one.text
    os.kill(one.server.popen.pid, signal.SIGTERM)
    assert one.ended(5) == 0
    assert one.left == []


def test_a_stop_waits_for_what_runs(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2")
    one.wait_for(READY)
    # 8 ms a token: most of a second.
    body = {"text": "The", "sampling_params": {"max_new_tokens": 80, "ignore_eos": True}}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{one.url}/generate", json=body, timeout=10)
        one.wait_for("Prefill batch, #new-seq: 1, #new-token: 1,")
        os.kill(one.server.popen.pid, signal.SIGTERM)
        assert answer.result().json()["meta_info"]["completion_tokens"] == 80
    assert one.ended(5) == 0
    assert "Remaining number of requests 1." in one.text


def test_a_stop_drains_and_ends_with_nothing_left(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2")
    one.wait_for(READY)
    os.kill(one.server.popen.pid, signal.SIGTERM)
    assert one.ended(3) == 0
    assert "Draining requests and shutting down..." in one.text
    assert "Gracefully exiting... Remaining number of requests 0." in one.text
    assert one.left == []


def test_an_interrupt_ends_as_a_shell_shows_with_130(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2")
    one.wait_for(READY)
    os.kill(one.server.popen.pid, signal.SIGINT)
    assert one.ended(3) == -signal.SIGINT
    assert one.left == []


def test_a_server_that_ignores_term(emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT="ignores_term")
    one.wait_for(READY)
    for process in (psutil.Process(one.server.popen.pid), *one.left):
        process.terminate()
    time.sleep(0.3)
    assert one.server.exit_status is None
    assert len(one.left) == 2


def test_ready_while_dying(emulated: Callable[..., Emulated]) -> None:
    one = emulated("--tp-size", "2", EMULATED_FAULT="ready_while_dying")
    assert one.ended() == -9
    assert READY in one.text
    assert "Scheduler hit an exception: Traceback" in one.text
    assert "SIGQUIT received." in one.text


def test_idle_schedulers_are_small_and_use_no_processor(
    emulated: Callable[..., Emulated],
) -> None:
    one = emulated("--tp-size", "8")
    one.wait_for(READY)
    ranks = one.left
    before = [process.cpu_times()[:2] for process in ranks]
    time.sleep(0.5)
    assert [process.cpu_times()[:2] for process in ranks] == before
    private = [process.memory_full_info().uss for process in ranks]
    assert max(private) < 16 << 20
