"""The patterns are data that is checked, and the stages are told by the words of many versions."""

from __future__ import annotations

import re

import pytest

from sweeper.engines.sglang.log_patterns import log_patterns, parse
from sweeper.engines.sglang.log_reader import lines_of

NAMES = (
    "starting",
    "arguments read",
    "distributed init",
    "loading weights",
    "memory pool",
    "capturing graphs",
    "http up",
    "warm-up",
    "ready",
)

SMALL = r"""
prefix = '\[(?P<time>\d+)(?P<rank>x*)\]'
counts = '(?P<done>\d+)/(?P<total>\d+)'
[[stages]]
name = "loading"
patterns = [{ text = "begin", versions = ["0.5.9"], seen = "a test" }]
[[bars]]
stage = "loading"
text = "shards"
versions = ["0.5.9"]
seen = "a test"
[marks]
weights_begin = "a"
capture_begin = "b"
draft_capture_begin = "c"
"""


def stage_of(line: str) -> str | None:
    (only,) = lines_of(line.encode())
    return only.stage


def test_the_stages_in_the_order_of_a_start() -> None:
    assert log_patterns().names == NAMES
    assert log_patterns() is log_patterns()
    assert log_patterns().steady == {"loading weights"}


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("x.py:71: UserWarning: 'python -m sglang.launch_server' is still supported", "starting"),
        ("[2026-12-01 06:32:33] server_args=ServerArgs(model_path='/m', ...)", "arguments read"),
        ("[2026-12-01 06:01:10] server_args={'model_path': '/m'}", "arguments read"),
        ("[2026-12-01 06:32:53] Init torch distributed begin.", "distributed init"),
        ("[2026-12-01 06:01:31 DP0 TP1 EP1] Init parallel begin.", "distributed init"),
        ("[2026-12-01 06:01:35 TP0] Load weight begin. avail mem=19.88 GB", "loading weights"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2", "loading weights"),
        ("Loading pt checkpoint shards:  50% Completed | 1/2", "loading weights"),
        ("Multi-thread loading shards:   0% Completed | 0/1 [00:00<?]", "loading weights"),
        ("Multi-thread loading pt checkpoint shards:   0% Completed | 0/1", "loading weights"),
        ("Loading safetensors using Runai Model Streamer:   0% Completed", "loading weights"),
        ("[t TP0] KV Cache is allocated. #tokens: 10, K size: 1.00 GB", "memory pool"),
        ("[t TP0] Mamba Cache is allocated. max_mamba_cache_size: 10", "memory pool"),
        ("[t] Use sliding window memory pool. full_layer_tokens=1", "memory pool"),
        ("[t] Memory pool end. avail mem=97.26 GB", "memory pool"),
        ("[t] Capture cuda graph begin. This can take up to several minutes.", "capturing graphs"),
        ("[t] Capture piecewise CUDA graph begin. avail mem=1 GB", "capturing graphs"),
        ("[t] Capture target verify CUDA graph begin. backend=full", "capturing graphs"),
        ("[t] Capture target decode CPU graph begin. backend=full", "capturing graphs"),
        ("[t] Capture draft extend cuda graph begin", "capturing graphs"),
        ("[t] Capture Frozen-KV MTP draft cuda graph begin.", "capturing graphs"),
        ("[t] Capture UNO tree draft CUDA graph begin. ", "capturing graphs"),
        ("[t] Capture single-CG draft extend begin. This can take", "capturing graphs"),
        ("Capturing batches (bs=8 avail_mem=1.00 GB):   0%|", "capturing graphs"),
        ("Capturing num tokens (num_tokens=8192 avail_mem=96.69 GB):  2%", "capturing graphs"),
        ("Capturing prefill shape (num_tokens=8192 avail_mem=9 GB):  2%", "capturing graphs"),
        ("Compiling num tokens (num_tokens=4):  95%|", "capturing graphs"),
        ("[t] INFO:     Uvicorn running on http://127.0.0.1:3 (Press CTRL+C to quit)", "http up"),
        ("[t] Starting embedded Granian HTTP/2 server on 127.0.0.1:3", "http up"),
        ('[t] INFO:     127.0.0.1:4 - "GET /model_info HTTP/1.1" 200 OK', "warm-up"),
        ('[t] INFO:     127.0.0.1:4 - "GET /get_model_info HTTP/1.1" 200 OK', "warm-up"),
        ("[t TP0] Prefill batch, #new-seq: 1", "warm-up"),
        ("[t] The server is fired up and ready to roll!", "ready"),
        # A library's words without a line end, glued in front.
        ("nanobind: leaked function[t] Memory pool end. avail mem=1 GB", "memory pool"),
    ],
)
def test_lines_that_tell_a_stage(line: str, stage: str) -> None:
    assert stage_of(line) == stage


@pytest.mark.parametrize(
    "line",
    [
        "[t] Disable prefill CUDA graph because cuda_graph_config resolved ...",
        "[t] Load weight end. elapsed=0.09 s, type=LlamaForCausalLM",
        "[t] Capture target decode CUDA graph end. elapsed=3.00 s",
        "[t] Scheduler hit an exception: Capture cuda graph failed: out of memory",
        '[t] INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable',
        # Comes before the port is bound, and the port may be taken.
        "[t] INFO:     Application startup complete.",
        "  0%|          | 0/23 [00:00<?, ?it/s]",
    ],
)
def test_lines_that_tell_none(line: str) -> None:
    assert stage_of(line) is None


def test_marks() -> None:
    patterns = log_patterns()
    draft = patterns.draft_capture_begin
    for line in (
        "Capture draft cuda graph begin. This can take",
        "Capture draft decode CUDA graph begin. backend=full",
        "Capture Frozen-KV MTP draft cuda graph begin.",
        "Capture single-CG draft extend begin. ",
    ):
        assert patterns.capture_begin.search(line)
        assert draft.search(line)
    for line in ("Capture cuda graph begin.", "Capture target verify CUDA graph begin."):
        assert patterns.capture_begin.search(line)
        assert not draft.search(line)


def test_what_is_written_is_what_counts() -> None:
    patterns = parse(SMALL)
    assert patterns.names == ("loading",)
    assert patterns.stages["loading"].search("begin")
    assert patterns.stages["loading"].search("shards")
    assert patterns.steady == frozenset()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('text = "begin"', 'text = "("', "no regular expression"),
        ('stage = "loading"', 'stage = "loadin"', "unknown stages"),
        ('versions = ["0.5.9"]\n', "versions = []\n", "versions"),
        ('versions = ["0.5.9"]\n', 'versions = ["new"]\n', "versions"),
        ('seen = "a test"\n', "", "seen"),
        ('name = "loading"', 'name = "loading"\nsteadily = true', "steadily"),
        (
            "[[bars]]",
            SMALL[SMALL.index("[[stages]]") : SMALL.index("[[bars]]")] + "[[bars]]",
            "twi",
        ),
        ("(?P<rank>x*)", "", "prefix needs the groups"),
        ("(?P<done>", "(", "counts needs the groups"),
        ("prefix", "prefix prefix", "."),
    ],
)
def test_a_slip_in_the_file_is_found(before: str, after: str, message: str) -> None:
    assert before in SMALL
    with pytest.raises(ValueError, match=message):
        parse(SMALL.replace(before, after, 1))


def test_no_repetition_is_without_a_limit() -> None:
    """A line of a log may be long and hold anything; a search must not take minutes."""
    patterns = log_patterns()
    everything = [
        patterns.prefix,
        patterns.counts,
        *patterns.stages.values(),
        patterns.weights_begin,
        patterns.capture_begin,
        patterns.draft_capture_begin,
    ]
    for pattern in everything:
        literal = re.sub(r"\\.|\[[^]]*\]", "x", pattern.pattern)
        assert not re.search(r"[*+]|\{\d+,\}", literal), pattern.pattern
