"""Recorded starts are told stage by stage, in order, however the log arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.engines.sglang.stages import STAGES, LogFollower, stage_of

RECORDINGS = Path(__file__).with_name("recordings")
NAMES = [name for name, _ in STAGES]


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
        ("\rMulti-thread loading shards:   0% Completed | 0/1 [00:00<?]", "loading weights"),
        ("[t TP0] KV Cache is allocated. #tokens: 10, K size: 1.00 GB", "memory pool"),
        ("[t] Memory pool end. avail mem=97.26 GB", "memory pool"),
        ("[t] Capture cuda graph begin. This can take up to several minutes.", "capturing graphs"),
        ("[t] Capture target verify CUDA graph begin. backend=full", "capturing graphs"),
        ("[t] Capture draft extend cuda graph begin", "capturing graphs"),
        ("Capturing num tokens (num_tokens=8192 avail_mem=96.69 GB):  2%", "capturing graphs"),
        ("[t] INFO:     Uvicorn running on http://127.0.0.1:3 (Press CTRL+C to quit)", "http up"),
        ('[t] INFO:     127.0.0.1:4 - "GET /model_info HTTP/1.1" 200 OK', "warm-up"),
        ('[t] INFO:     127.0.0.1:4 - "GET /get_model_info HTTP/1.1" 200 OK', "warm-up"),
        # A library's words without a line end, glued in front.
        ("nanobind: leaked function[t] Memory pool end. avail mem=1 GB", "memory pool"),
    ],
)
def test_stage_of(line: str, stage: str) -> None:
    assert stage_of(line) == stage


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[t] Disable prefill CUDA graph because cuda_graph_config resolved ...",
        "[t] Load weight end. elapsed=0.09 s, type=LlamaForCausalLM",
        "[t] Scheduler hit an exception: Capture cuda graph failed: out of memory",
        '[t] INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable',
        # Comes before the port is bound, and the port may be taken.
        "[t] INFO:     Application startup complete.",
        "[t] The server is fired up and ready to roll!",
    ],
)
def test_lines_that_tell_nothing(line: str) -> None:
    assert stage_of(line) is None


def follow(data: bytes, log: Path, piece: int) -> list[str]:
    """The stages that a follower tells who looks after every piece of the log."""
    follower, told = LogFollower(log), []
    for start in range(0, len(data), piece):
        with log.open("ab") as stream:
            stream.write(data[start : start + piece])
        if stage := follower.new_stage():
            told.append(stage)
    return told


@pytest.mark.parametrize("piece", [1, 64, 1000])
@pytest.mark.parametrize(
    ("recording", "left_out"),
    [
        ("cpu_tp2_0.5.23.log", {"capturing graphs"}),
        ("h200_eagle3_0.5.17.log", set()),
        ("h200_trtllm_mla_0.5.17.log", set(NAMES[1:])),
    ],
)
def test_recorded_starts(recording: str, left_out: set[str], piece: int, tmp_path: Path) -> None:
    """Two ranks, a draft model that goes through stages again, and a failure."""
    told = follow((RECORDINGS / recording).read_bytes(), tmp_path / "log", piece)
    expected = [name for name in NAMES if name not in left_out]
    assert told == sorted(set(told), key=NAMES.index)
    assert told[-1] == expected[-1]
    # A look that comes late sees only the last of several stages.
    assert set(told) <= set(expected)
    if piece == 1:
        assert told == expected


def test_progress_bar_counts_before_its_line_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log)
    assert follower.new_stage() is None  # no log yet
    log.write_bytes(b"\rCapturing batches (bs=8 avail_mem=1 GB):   0%|")
    assert follower.new_stage() is None
    with log.open("ab") as stream:
        stream.write(b"\rCapturing batches (bs=4 ")
    assert follower.new_stage() == "capturing graphs"
    assert follower.new_stage() is None
    assert follower.stage == "capturing graphs"


def test_never_backward(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log)
    log.write_text("[t TP1] Memory pool end.\n[t TP0] Load weight begin.\n")
    assert follower.new_stage() == "memory pool"
    with log.open("a") as stream:
        stream.write("[t TP0] Memory pool end.\n[t] Load weight begin. (draft)\n")
    assert follower.new_stage() is None


def test_a_log_that_was_emptied_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log)
    log.write_text("noise " * 50 + "\nMemory pool end.\n")
    assert follower.new_stage() == "memory pool"
    log.write_text("Uvicorn running on http://127.0.0.1:1\n")
    assert follower.new_stage() == "http up"


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe\x00 Memory pool end.\n" + b"x" * 3_000_000)
    assert LogFollower(log).new_stage() == "memory pool"
