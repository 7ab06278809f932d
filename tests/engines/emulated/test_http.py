"""The endpoints speak as SGLang's do, and misbehave when told to; seen through the sweeper's own client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sweeper.engines.emulated.http import Server
from sweeper.engines.emulated.settings import Settings
from sweeper.engines.sglang.read_back import effective
from sweeper.load.client import LevelRun, run_level
from sweeper.load.metrics import level_metrics
from sweeper.load.server_api import ServerRefusedError, flush_cache, tokenize

ARGS = {"served_model_name": "mine", "model_path": "/models/x", "enable_metrics": True}


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)


class Running:
    """A server in this process, and what it told."""

    def __init__(self, server: Server, url: str, log: list[str], died: list[str]) -> None:
        self.server, self.url, self.log, self.died = server, url, log, died
        self.alive = True

    async def level(
        self, requests: int = 1, concurrency: int = 1, tokens: int = 8, limit: float = 10
    ) -> LevelRun:
        return await run_level(
            self.url,
            [tuple(range(20))] * requests,
            concurrency=concurrency,
            output_tokens=tokens,
            request_timeout=limit,
        )

    async def get(self, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=10) as client:
            return await client.get(path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=10) as client:
            return await client.post(path, json=body, **more)


@contextlib.asynccontextmanager
async def serving(
    fault: str = "",
    *,
    fault_at: int = 1,
    profile: str = "flat",
    ready: bool = True,
    **args: Any,
) -> AsyncIterator[Running]:
    bound = socket.create_server(("127.0.0.1", 0))
    settings = Settings(
        args={**ARGS, **args},
        env={},
        fault=fault,
        fault_at=fault_at,
        seed=0,
        noise=0.0,
        profile=profile,
        launch_command="python -m sweeper.engines.emulated --port 1",
    )
    log: list[str] = []
    died: list[str] = []
    server = Server(
        settings,
        socket=bound,
        log=log.append,
        alive=lambda: running.alive,
        die=died.append,
    )
    running = Running(server, f"http://127.0.0.1:{bound.getsockname()[1]}", log, died)
    await server.start()
    if ready:
        server.set_ready()
    try:
        yield running
    finally:
        await asyncio.wait_for(server.close(), 10)


async def test_a_level_as_the_model_says() -> None:
    async with serving() as server:
        run = await server.level(requests=2, tokens=32)
    assert run.failed == ()
    metrics = level_metrics(run.answered)
    assert metrics["prompt_tokens_mean"] == 20
    assert 8.0 < metrics["tpot_mean_ms"] < 12  # 8.1, on a machine with time to spare
    assert [count for _, count in run.answered[0].chunks] == list(range(1, 33))


async def test_starting_then_ready() -> None:
    async with serving(ready=False) as server:
        assert (await server.get("/health")).status_code == 503
        assert (await server.get("/ready")).status_code == 503
        assert (await server.get("/model_info")).json()["emulated"] is True
        assert (await server.get("/server_info")).json()["status"] == "starting"
        early = asyncio.create_task(server.level())
        assert not (await asyncio.wait({early}, timeout=0.2))[0]
        server.server.set_ready()
        assert (await early).failed == ()
        assert (await server.get("/health")).status_code == 200
        assert (await server.get("/server_info")).json()["status"] == "ready"
        assert (await server.get("/v1/models")).json()["data"][0]["id"] == "mine"
        assert any('"GET /health HTTP/1.1" 503 Service Unavailable' in line for line in server.log)


async def events(server: Running, path: str, body: Any) -> list[str]:
    text = (await server.post(path, body)).text
    assert text.endswith("\n\n")
    return [part.removeprefix("data: ") for part in text[:-2].split("\n\n")]


def prompt(**more: Any) -> dict[str, Any]:
    sampling = {"max_new_tokens": 6, "ignore_eos": True}
    return {"text": "one two three", "sampling_params": sampling, **more}


async def test_chunks_are_cumulative() -> None:
    async with serving() as server:
        *parts, done = await events(server, "/generate", prompt(stream=True))
    assert done == "[DONE]"
    chunks = [json.loads(part) for part in parts]
    assert [len(chunk["output_ids"]) for chunk in chunks] == [1, 2, 3, 4, 5, 6]
    assert all(b["text"].startswith(a["text"]) for a, b in itertools.pairwise(chunks))
    assert [chunk["meta_info"]["finish_reason"] for chunk in chunks[:-1]] == [None] * 5
    meta = chunks[-1]["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (3, 6, 0)
    assert meta["weight_version"] == "default"
    assert meta["e2e_latency"] > 0
    assert "spec_verify_ct" not in meta


async def test_incremental_chunks_and_groups_of_tokens() -> None:
    async with serving(incremental_streaming_output=True, stream_interval=4) as server:
        *parts, _ = await events(server, "/generate", prompt(stream=True))
    chunks = [json.loads(part) for part in parts]
    assert [len(chunk["output_ids"]) for chunk in chunks] == [1, 4, 1]
    assert [chunk["meta_info"]["completion_tokens"] for chunk in chunks] == [1, 5, 6]
    async with serving() as server:
        whole = (await server.post("/generate", prompt())).json()
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert [i for chunk in chunks for i in chunk["output_ids"]] == whole["output_ids"]


async def test_without_a_tokenizer_there_is_no_text() -> None:
    async with serving(skip_tokenizer_init=True) as server:
        assert "text" not in (await server.post("/generate", prompt())).json()


async def test_openai_endpoints() -> None:
    message = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 3}
    async with serving() as server:
        whole = (await server.post("/v1/completions", {"prompt": "one", "max_tokens": 4})).json()
        chat = (await server.post("/v1/chat/completions", message)).json()
        stream = {**message, "stream": True, "stream_options": {"include_usage": True}}
        *parts, done = await events(server, "/v1/chat/completions", stream)
        silent = await events(server, "/v1/chat/completions", {**message, "stream": True})
    assert whole["object"] == "text_completion"
    assert whole["usage"] == {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
    assert chat["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"
    chunks = [json.loads(part) for part in parts]
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert chunks[-1]["choices"] == []
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert text == chat["choices"][0]["message"]["content"]
    assert not any("usage" in part for part in silent)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"text": ""},
        {"text": ["a", "b"]},
        {"text": "a", "sampling_params": {"max_new_tokens": 0}},
        {"input_ids": [1] * 500_000},
    ],
)
async def test_bad_requests(body: Any) -> None:
    async with serving() as server:
        answer = await server.post("/generate", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == 400
        assert (await server.get("/nothing")).status_code == 404
        assert server.server.requests_in_flight == 0


async def test_tokenize_and_flush() -> None:
    async with serving() as server:
        tokens = await tokenize(server.url, "mine", ["one two", "extraordinary"])
        assert [len(text) for text in tokens] == [2, 3]
        await flush_cache(server.url)
        level = asyncio.create_task(server.level(tokens=200))
        await until(lambda: server.server.requests_in_flight)
        refused = await server.get("/flush_cache")
        assert refused.status_code == 400
        await flush_cache(server.url)  # waits
        assert (await level).failed == ()


async def test_server_info_says_what_came_out() -> None:
    async with serving(
        profile="kimi-k2.5-8gpu", speculative_algorithm="EAGLE3", tp_size=8, api_key="secret"
    ) as server:
        headers = {"Authorization": "Bearer secret"}
        assert (await server.get("/server_info")).status_code == 401
        info = (await server.get("/server_info", headers=headers)).json()
    settings = effective(info)
    assert settings["emulated"] is True
    assert settings["attention_backend"] == "triton"
    assert settings["max_running_requests"] == 48
    assert settings["effective_max_running_requests_per_dp"] == 48
    assert settings["speculative_num_draft_tokens"] == 4
    assert settings["cuda_graph_config.decode.backend"] == "full"
    assert info["version"] == "0.5.23"
    assert info["launch_command"].startswith("python -m sweeper.engines.emulated")
    assert info["max_total_num_tokens"] > 100_000
    assert "secret" not in json.dumps(info)


async def test_speculation_is_told_in_every_place() -> None:
    async with serving(
        profile="crashy", speculative_algorithm="EAGLE3", decode_log_interval=2
    ) as server:
        run = await server.level(tokens=64)
        info = (await server.get("/server_info")).json()
        metrics = (await server.get("/metrics")).text
    length = run.answered[0].accept_length
    assert length is not None
    assert 2.0 < length < 3.0
    assert info["internal_states"][0]["avg_spec_accept_length"] == pytest.approx(length, abs=0.2)
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    assert 2.0 < families["sglang:spec_accept_length"].samples[0].value < 3.0


async def test_metrics() -> None:
    async with serving() as server:
        await server.level(requests=3, concurrency=3)
        text = (await server.get("/metrics")).text
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["sglang:generation_tokens_total"] == 24
    assert samples["sglang:prompt_tokens_total"] == 60
    assert samples["sglang:time_to_first_token_seconds_count"] == 3
    assert samples["sglang:inter_token_latency_seconds_count"] == 21
    assert samples["sglang:num_running_reqs"] == 0
    assert samples["sglang:emulated"] == 1


async def test_metrics_must_be_asked_for() -> None:
    async with serving(enable_metrics=False) as server:
        assert (await server.get("/metrics")).status_code == 404
    async with serving("metrics_missing") as server:
        assert (await server.get("/metrics")).status_code == 404


async def test_a_client_that_leaves_takes_its_request_along() -> None:
    async with serving() as server:
        run = await server.level(tokens=5000, limit=0.2)
        assert "no end within" in run.failed[0].why
        await until(lambda: not server.server.requests_in_flight)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("truncated_streams", "4 of 8 tokens before the stream ended"),
        ("error_chunks", "error in the stream"),
        ("http_500", "HTTP 500"),
        ("no_usage", "0 of 8 tokens"),
    ],
)
async def test_requests_that_fail(fault: str, why: str) -> None:
    async with serving(fault, fault_at=2) as server:
        run = await server.level(requests=3)
        assert len(run.answered) == 1
        assert len(run.failed) == 2
        assert why in run.failed[0].why
        assert (await server.get("/health")).status_code == 200


@pytest.mark.parametrize("fault", ["never_answers", "stops_answering"])
async def test_green_and_silent(fault: str) -> None:
    async with serving(fault, fault_at=2) as server:
        run = await server.level(requests=2, limit=1.0)
        assert len(run.answered) == 1
        assert "no end within" in run.failed[0].why
        assert (await server.get("/health")).status_code == 200


async def test_hung_the_health_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.engines.emulated.http.HEALTH_TIMEOUT", 0.1)
    async with serving("hang_under_load") as server:
        assert (await server.level(limit=0.3)).failed
        assert (await server.get("/health")).status_code == 503


async def test_a_trickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.engines.emulated.answering.TRICKLE", 0.1)
    async with serving("slow_trickle", fault_at=2) as server:
        fast, slow = (await server.level(requests=2)).answered
    assert slow.e2e > 0.7 > fast.e2e


async def test_refusing_everything() -> None:
    async with serving("refuses", fault_at=100) as server:
        assert (await server.get("/health")).status_code == 200
        assert (await server.get("/v1/models")).status_code == 401
        with pytest.raises(ServerRefusedError, match="401"):
            await tokenize(server.url, "mine", ["x"])


async def test_no_read_back() -> None:
    async with serving("server_info_broken", fault_at=100) as server:
        assert (await server.get("/server_info")).status_code == 500
        assert (await server.level()).failed == ()


async def test_healthy_too_early() -> None:
    async with serving("health_lies", ready=False) as server:
        assert (await server.get("/health")).status_code == 200


async def test_a_living_port_of_dead_schedulers() -> None:
    async with serving() as server:
        server.alive = False
        assert (await server.get("/health")).status_code == 503
        assert (await server.get("/model_info")).status_code == 200
        assert (await server.level(limit=0.3)).failed


@pytest.mark.parametrize(
    "fault",
    [
        "oom_under_load",
        "scheduler_exception_load",
        "rank_killed_load",
        "dies_under_load_silently",
        "watchdog_timeout",
        "nccl_collective_timeout",
        "gpu_lost",
        "zombie",
    ],
)
async def test_deaths_are_handed_on_once(fault: str) -> None:
    async with serving(fault, fault_at=2) as server:
        run = await server.level(requests=4, concurrency=2, limit=0.6)
        assert server.died == [fault]
        assert len(run.answered) <= 1
        assert len(run.failed) >= 3


async def test_a_server_that_is_told_to_end_answers_first() -> None:
    async with serving("terminated_from_outside") as server:
        run = await server.level(requests=2, tokens=40)
        assert server.died == ["terminated_from_outside"]
        assert run.failed == ()


async def test_a_fault_of_the_profile_acts() -> None:
    async with serving(profile="crashy", mem_fraction_static=0.93) as server:
        assert (await server.level(limit=0.4)).failed
        assert server.died == ["oom_under_load"]


async def test_closing_cuts_what_is_in_flight() -> None:
    async with serving("never_answers") as server:
        level = asyncio.create_task(server.level(limit=30))
        await until(lambda: server.server._faults.acts)
        await asyncio.wait_for(server.server.close(), 5)
        assert (await level).failed
