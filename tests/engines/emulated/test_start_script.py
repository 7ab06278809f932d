"""The lines of a start, against the stages that a reader of SGLang's log knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from emulated_process import stage_of

from sweeper.engines.emulated.log import reworded
from sweeper.engines.emulated.start_script import (
    Facts,
    Times,
    capture_sizes,
    rank_tags,
    script,
)

RECORDINGS = Path(__file__).parents[1] / "sglang" / "recordings"


def facts(draft: bool = False, **args: Any) -> Facts:
    return Facts(
        args={"tp_size": 2, **args},
        notes=["Max running requests is reset to 48 for speculative decoding."] if draft else [],
        kv_tokens=160000,
        max_running_requests=2048,
        chunked_prefill_size=8192,
        context_length=262144,
        draft=draft,
    )


@pytest.mark.parametrize(
    ("args", "tags"),
    [
        ({}, [""]),
        ({"tp_size": 2}, [" TP0", " TP1"]),
        ({"tp_size": 2, "pp_size": 2}, [" PP0 TP0", " PP0 TP1", " PP1 TP0", " PP1 TP1"]),
        ({"dp_size": 2}, [" DP0", " DP1"]),
        ({"tp_size": 2, "ep_size": 2}, [" TP0 EP0", " TP1 EP1"]),
        (
            {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True},
            [" DP0 TP0", " DP0 TP1", " DP1 TP2", " DP1 TP3"],
        ),
    ],
)
def test_tags_of_the_ranks(args: dict[str, Any], tags: list[str]) -> None:
    assert rank_tags(args) == tags


def test_each_process_writes_its_lines_in_the_order_of_time() -> None:
    written = script(Times(), facts())
    for lines in (written.opening, *written.ranks):
        assert [line.at for line in lines] == sorted(line.at for line in lines)


def test_the_first_rank_passes_the_stages_and_shows_its_progress() -> None:
    written = script(Times(), facts())
    lines = [*written.opening, *written.ranks[0]]
    stages = [stage for stage in (stage_of(line.text) for line in lines) if stage]
    assert list(dict.fromkeys(stages)) == [
        "starting",
        "arguments read",
        "distributed init",
        "loading weights",
        "memory pool",
        "capturing graphs",
    ]
    bars = [line.text for line in lines if line.text.startswith("\r")]
    assert "\rMulti-thread loading shards:  50% Completed | 32/64 [02:36<02:36,  4.89s/it]" in bars
    assert bars[-1].endswith("100%|██████████| 36/36 [00:25<00:00,  1.44it/s]\n")
    assert not any(line.text.startswith("\r") for line in written.ranks[1])


def test_lines_have_the_form_of_recorded_ones() -> None:
    """Numbers apart, each line of these kinds stands in a recording as well."""

    def form(text: str) -> str:
        text = re.sub(r"type=\w+|bs=\[[\d, ]+\]|torch\.\w+|\bbackend=\w+", "x", text)
        return re.sub(r"\d+(\.\d+)?", "0", text)

    recorded: set[str] = set()
    for path in RECORDINGS.rglob("*.log"):
        for line in re.split(r"[\r\n]", path.read_text(encoding="utf-8", errors="replace")):
            recorded.add(form(re.sub(r"^\[[^\]]*\] ", "", line)))
    written = script(Times(), facts(draft=True, speculative_algorithm="EAGLE3"))
    stems = (
        "Init parallel",
        "Memory baseline",
        "Load weight",
        "Memory pool",
        "Capture ",
        "max_total",
        "Tree cache",
        "Max running",
    )
    checked = {form(line.text) for line in written.ranks[0] if line.text.startswith(stems)}
    assert len(checked) > 9
    assert checked <= recorded


def test_a_draft_model_is_a_second_pass() -> None:
    written = script(Times(), facts(draft=True, speculative_algorithm="EAGLE3"))
    text = [line.text for line in written.ranks[1]]
    assert sum("Load weight begin" in line for line in text) == 2
    assert sum("Memory pool end" in line for line in text) == 2
    captured = [line.split(" CUDA")[0] for line in text if "CUDA graph begin" in line]
    assert captured == ["Capture target verify", "Capture draft decode", "Capture draft extend"]


def test_without_graphs_none_is_captured() -> None:
    written = script(Times(), facts(disable_cuda_graph=True))
    assert not any("Capture " in line.text for line in written.ranks[0])
    begin, end = written.stages["graph_capture"]
    assert begin == end


def test_a_profile_says_how_long_its_stages_take() -> None:
    times = Times.of({"weights": 30.0, "shards": 4, "unknown": 1.0})
    assert (times.weights, times.shards, times.graphs) == (30.0, 4, 25.0)
    written = script(times.slower(10), facts())
    begin, end = written.stages["weights"]
    assert end - begin == 300
    assert written.moment("weights", 0.5) == begin + 150


@pytest.mark.parametrize(
    ("args", "running", "sizes"),
    [
        ({}, 2048, [1, 2, 4, 8, 12, *range(16, 257, 8)]),
        ({"cuda_graph_max_bs_decode": 16}, 2048, [1, 2, 4, 8, 12, 16]),
        ({"cuda_graph_bs_decode": [4, 1]}, 2048, [1, 4]),
        ({}, 4, [1, 2, 4]),
    ],
)
def test_batch_sizes_of_the_graphs(args: dict[str, Any], running: int, sizes: list[int]) -> None:
    assert capture_sizes(args, running, speculative=False) == sizes


def test_the_recorded_sizes_under_speculation() -> None:
    expected = [*range(1, 9), *range(10, 33, 2), 40, 44, 48]
    assert capture_sizes({}, 48, speculative=True) == expected


def test_a_foreign_log_tells_of_no_stage() -> None:
    written = script(Times(), facts())
    for line in (*written.opening, *written.ranks[0]):
        assert stage_of(reworded(line.text)) is None
