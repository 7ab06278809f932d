"""What a server runs with is read from its answer and from its schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from web import Routes, answer

from sweeper.engines.sglang.read_back import (
    effective,
    joined,
    read_back,
    scheduler_env,
    variables,
)
from sweeper.servers import tagged

RECORDINGS = Path(__file__).with_name("recordings")


def recorded(name: str) -> dict[str, Any]:
    text = (RECORDINGS / f"h200_{name}_server_info_0.5.17.json").read_text(encoding="utf-8")
    info: dict[str, Any] = json.loads(text)
    return info


def test_recorded_answer_of_a_speculative_server() -> None:
    found = effective(recorded("eagle3"))
    assert found["attention_backend"] == "triton"
    assert found["speculative_algorithm"] == "EAGLE3"
    assert found["effective_max_running_requests_per_dp"] == 48
    assert found["cuda_graph_config.decode.backend"] == "full"
    assert found["cuda_graph_config.prefill.backend"] == "disabled"
    assert found["memory_usage.kvcache"] == 36.726
    assert found["memory_usage.graph.draft_decode"] == 0.1
    assert found["version"] == "0.5.17"
    # The launcher says false and nothing; the scheduler, which decides, says otherwise.
    assert found["disable_chunked_prefix_cache"] is True
    assert found["pp_max_micro_batch_size"] == 48


def test_recorded_answer_of_a_plain_server() -> None:
    found = effective(recorded("triton"))
    assert "speculative_algorithm" not in found  # null: left open
    assert found["effective_max_running_requests_per_dp"] > 48


@pytest.mark.parametrize("name", ["eagle3", "triton"])
def test_noise_is_left_out(name: str) -> None:
    found = effective(recorded(name))
    noise = {"port", "host", "served_model_name", "status", "last_gen_throughput"}
    assert not noise & set(found)
    assert not [key for key in found if key.startswith(("_", "startup_time"))]
    assert all(isinstance(value, bool | int | float | str) for value in found.values())


def test_secrets_are_masked() -> None:
    found = effective(
        {"api_key": "sk-1", "admin_api_key": None, "tbo_token_distribution_threshold": 0.48}
    )
    assert found == {"api_key": "***", "tbo_token_distribution_threshold": 0.48}


def test_the_command_line_is_left_out_for_the_secrets_in_it() -> None:
    assert effective({"launch_command": "--api-key sk-1"}) == {}


def test_replicas_that_differ_stand_side_by_side() -> None:
    states = [{"page_size": 1, "tp_size": 2}, {"page_size": 64, "tp_size": 2}]
    found = effective({"page_size": None, "internal_states": states})
    assert found == {"page_size": "1 | 64", "tp_size": 2}


def test_size_is_bounded() -> None:
    huge = {f"x{i}": i for i in range(5000)} | {
        "a_text": "x" * 10_000,
        "a_list": list(range(1000)),
        "b_list": [1, 2],
    }
    found = effective(huge)
    assert len(found) == 1000
    assert len(found["a_text"]) == 500
    assert "a_list" not in found
    assert found["b_list"] == "[1, 2]"


@pytest.mark.parametrize("states", [None, [], ["odd"], [{}]])
def test_odd_internal_states(states: Any) -> None:
    assert effective({"page_size": 1, "internal_states": states}) == {"page_size": 1}


async def test_read_back_asks_the_server(http_server: Callable[[Routes], str]) -> None:
    url = http_server({"/server_info": answer(recorded("eagle3"))})
    facts = await read_back(url, "no such tag")
    assert facts.effective == effective(recorded("eagle3"))
    assert facts.scheduler_env == {}


async def test_the_old_name_of_the_address(http_server: Callable[[Routes], str]) -> None:
    url = http_server({"/get_server_info": answer({"page_size": 1})})
    assert (await read_back(url, "no such tag")).effective == {"page_size": 1}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("no json", 200, ValueError),
        ([1], 200, ValueError),
        ({}, 500, httpx.HTTPError),
        ({}, 404, httpx.HTTPError),
    ],
)
async def test_no_sensible_answer(
    body: Any,
    status: int,
    error: type[Exception],
    http_server: Callable[[Routes], str],
) -> None:
    url = http_server({"/server_info": answer(body, status)})
    with pytest.raises(error):
        await read_back(url, "no such tag")


def test_variables_of_interest() -> None:
    environ = b"NCCL_PROTO=LL\0PATH=/bin\0CUDA_VISIBLE_DEVICES=\0SGLANG_RUN_ID=7\0MY=a=b\0broken\0NCCLX=1\0"
    assert variables(environ) == {"NCCL_PROTO": "LL", "CUDA_VISIBLE_DEVICES": ""}
    assert variables(environ, {"MY"})["MY"] == "a=b"


def test_ranks_that_differ() -> None:
    ranks = [{"OMP_A": "1", "NCCL_B": "x"}, {"OMP_A": "2", "NCCL_B": "x", "SGLANG_C": "3"}]
    assert joined(ranks) == {"OMP_A": "1 | 2", "NCCL_B": "x", "SGLANG_C": "(unset) | 3"}


def test_secret_variables_are_masked() -> None:
    assert joined([{"SGLANG_API_KEY": "sk-1"}]) == {"SGLANG_API_KEY": "***"}


@pytest.fixture
def processes() -> Iterator[Callable[[str, str, dict[str, str]], None]]:
    """Starts sleeping processes with a title, a tag and an environment."""
    started: list[subprocess.Popen[bytes]] = []

    def start(title: str, tag: str, env: dict[str, str]) -> None:
        code = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(60)"
        popen = subprocess.Popen(
            [title, "-S", "-c", code],
            executable=sys.executable,
            env={**env, tagged.TAG: tag},
            stdout=subprocess.PIPE,
        )
        started.append(popen)
        assert popen.stdout is not None
        popen.stdout.readline()

    yield start
    for popen in started:
        popen.kill()
        popen.wait()


def test_environment_of_the_schedulers(
    processes: Callable[[str, str, dict[str, str]], None],
) -> None:
    tag = uuid.uuid4().hex
    processes("sglang::scheduler_TP1", tag, {"OMP_NUM_THREADS": "2", "NCCL_PROTO": "LL"})
    processes("sglang::scheduler_TP0", tag, {"OMP_NUM_THREADS": "1", "NCCL_PROTO": "LL"})
    processes("sglang::detokenizer", tag, {"NCCL_PROTO": "Simple"})
    # A launcher with a flag of this name is no scheduler.
    processes("python --scheduler-recv-interval 2", tag, {"NCCL_PROTO": "Simple"})
    processes("sglang::scheduler", "another", {"NCCL_PROTO": "Simple"})
    begin = time.monotonic()
    found = scheduler_env(tag, ["HOME"])
    assert time.monotonic() - begin < 5
    assert found == {"OMP_NUM_THREADS": "1 | 2", "NCCL_PROTO": "LL"}
