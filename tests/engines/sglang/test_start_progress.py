"""Recorded starts: how far they came, in which order, and what each stage took."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.engines.sglang.log_patterns import log_patterns
from sweeper.engines.sglang.log_reader import LogLine, LogReader, lines_of
from sweeper.engines.sglang.start_progress import Progress, StartProgress, replay

RECORDINGS = Path(__file__).with_name("recordings")

# Seconds that each stage took by the timestamps of the log, and the furthest stage.
STARTS: dict[str, tuple[str, dict[str, float]]] = {
    "cpu_ready_0.5.23": (
        "ready",
        {
            "starting": 2,
            "arguments read": 11,
            "distributed init": 3,
            "loading weights": 3,
            "memory pool": 1,
            "http up": 1,
            "warm-up": 0,
        },
    ),
    # The first prefill is compiled: the warm-up is the longest stage.
    "cpu_tp2_0.5.23": (
        "ready",
        {
            "starting": 1,
            "arguments read": 21,
            "distributed init": 4,
            "loading weights": 3,
            "memory pool": 0,
            "http up": 1,
            "warm-up": 21,
        },
    ),
    # Refused after the model was loaded.
    "cpu_ngram_refused_0.5.23": (
        "loading weights",
        {"starting": 2, "arguments read": 12, "distributed init": 3, "loading weights": 2},
    ),
    "h200_triton_0.5.17": (
        "ready",
        {
            "starting": 3,
            "arguments read": 24,
            "distributed init": 4,
            "loading weights": 2,
            "memory pool": 0,
            "capturing graphs": 69,
            "http up": 1,
            "warm-up": 12,
        },
    ),
    "h200_ngram_0.5.17": (
        "ready",
        {
            "starting": 2,
            "arguments read": 25,
            "distributed init": 5,
            "loading weights": 10,
            "memory pool": 0,
            "capturing graphs": 4,
            "http up": 1,
            "warm-up": 2,
        },
    ),
    "h200_eagle3_0.5.17": (
        "ready",
        {
            "starting": 2,
            "arguments read": 20,
            "distributed init": 3,
            "loading weights": 1,
            "memory pool": 1,
            "capturing graphs": 7,
            "http up": 1,
            "warm-up": 1,
        },
    ),
    "h200_first_start_triton_0.5.17": (
        "ready",
        {
            "starting": 3,
            "arguments read": 34,
            "distributed init": 4,
            "loading weights": 2,
            "memory pool": 0,
            "capturing graphs": 93,
            "http up": 1,
            "warm-up": 11,
        },
    ),
    "h200_first_start_flashinfer_0.5.17": (
        "ready",
        {
            "starting": 2,
            "arguments read": 26,
            "distributed init": 5,
            "loading weights": 2,
            "memory pool": 0,
            "capturing graphs": 154,
            "http up": 1,
            "warm-up": 0,
        },
    ),
    "h200_fa3_0.5.17": (
        "memory pool",
        {
            "starting": 2,
            "arguments read": 22,
            "distributed init": 3,
            "loading weights": 2,
            "memory pool": 0,
        },
    ),
    # Forbidden before the arguments were read; the log has no timestamp at all.
    "h200_trtllm_mla_0.5.17": ("starting", {"starting": 0}),
}


def recorded(name: str) -> list[LogLine]:
    reader = LogReader(RECORDINGS / f"{name}.log")
    return reader.read() + reader.unfinished()


def fed(*texts: str) -> StartProgress:
    """A start whose lines come one second after the other."""
    progress = StartProgress()
    for second, text in enumerate(texts, start=1):
        for line in lines_of(text.encode()):
            progress.feed(line, second)
    return progress


def weights(done: int, total: int, prefix: str = "") -> str:
    return f"{prefix}Loading safetensors checkpoint shards: 1% Completed | {done}/{total} [00:01<?]"


def test_every_recording_is_here() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.log")} == set(STARTS)


@pytest.mark.parametrize("name", STARTS)
def test_recorded_start(name: str) -> None:
    stage, took = STARTS[name]
    start = replay(recorded(name))
    assert start.stage == stage
    assert start.stages(start.last) == took
    assert list(start.stages(start.last)) == list(took)


@pytest.mark.parametrize("name", STARTS)
def test_stages_come_in_order(name: str) -> None:
    names = log_patterns().names
    progress, told = StartProgress(), []
    for line in recorded(name):
        progress.feed(line, 0)
        told.append(names.index(progress.stage))
    assert told == sorted(told)


@pytest.mark.parametrize("name", STARTS)
def test_whose_turn_it_is(name: str) -> None:
    """Only EAGLE3 has a draft model: it is loaded second, and its graphs are captured last."""
    progress, told = StartProgress(), []
    for line in recorded(name):
        progress.feed(line, 0)
        told.append((progress.stage, progress.draft))
    changes = [told[0], *(after for before, after in pairwise(told) if before != after)]
    drafts = [stage for stage, draft in changes if draft]
    if "eagle3" not in name:
        assert drafts == []
        return
    assert drafts == ["loading weights", "capturing graphs"]
    assert changes.index(("capturing graphs", False)) < changes.index(("capturing graphs", True))


def test_first_starts_compile_kernels_while_graphs_are_captured() -> None:
    for name in ("h200_first_start_triton_0.5.17", "h200_first_start_flashinfer_0.5.17"):
        start = replay(recorded(name))
        took = start.stages(start.last)
        assert took["capturing graphs"] > 90
        assert took["capturing graphs"] > sum(took.values()) / 2


def test_progress_of_a_recorded_capture() -> None:
    progress, seen = StartProgress(), []
    for line in recorded("h200_first_start_triton_0.5.17"):
        progress.feed(line, 0)
        if progress.progress and progress.progress not in seen:
            seen.append(progress.progress)
        # The first of 58 shapes takes most of the time, so none of it tells the time left.
        assert progress.done is None
    prefill = [at.done for at in seen if at.total == 58]
    decode = [at.done for at in seen if at.total == 36]
    assert prefill == sorted(prefill)
    assert (prefill[0], prefill[-1], decode[0], decode[-1]) == (0, 58, 0, 36)
    assert progress.progress is None


def test_before_the_first_line() -> None:
    progress = StartProgress()
    assert (progress.stage, progress.progress, progress.draft) == ("starting", None, False)
    assert progress.stages(7.5) == {"starting": 7.5}


def test_a_stage_that_goes_on_is_told_up_to_now() -> None:
    progress = fed("server_args={", "Load weight begin.")
    assert progress.stages(10) == {"starting": 1, "arguments read": 1, "loading weights": 8}
    # A clock that goes backward stands still.
    assert progress.stages(0) == {"starting": 1, "arguments read": 1, "loading weights": 0}


def test_ready_takes_no_time() -> None:
    progress = fed("Load weight begin.", "The server is fired up and ready to roll!")
    assert progress.stages(100) == {"starting": 1, "loading weights": 1}


def test_a_quiet_log_has_only_progress_bars() -> None:
    """With --log-level warning; and a log of an unknown version says even less."""
    progress = fed(weights(1, 4), "Capturing batches (bs=8 avail_mem=1 GB): 0%| | 1/9 [00:00<?]")
    assert progress.stage == "capturing graphs"
    assert progress.stages(3) == {"starting": 1, "loading weights": 1, "capturing graphs": 1}
    assert fed("Reading parameters", "Serving at 127.0.0.1").stage == "starting"


def test_never_backward() -> None:
    progress = fed("[t TP1] Memory pool end.", "[t TP0] Load weight begin.", weights(1, 4))
    assert progress.stage == "memory pool"
    assert progress.progress is None


def test_progress_of_the_weights() -> None:
    progress = fed("Load weight begin.", weights(16, 64))
    assert progress.progress == Progress(16, 64)
    assert progress.done == 0.25
    # When the bar is full, the other ranks may still be at work.
    progress = fed("Load weight begin.", weights(64, 64))
    assert progress.progress == Progress(64, 64)
    assert progress.done is None


@pytest.mark.parametrize(
    ("bars", "slowest"),
    [
        # Of ranks that are named.
        ([("[2026-12-01 06:01:31 TP0] ", 9), ("[2026-12-01 06:01:31 TP1] ", 4)], 4),
        # Of ranks that are not, as with data parallelism.
        ([("", 0), ("", 1), ("", 0), ("", 2), ("", 1), ("", 3)], 1),
        ([("", 10), ("", 8), ("", 11), ("", 9), ("", 12)], 9),
        # A full bar is drawn twice, and one bar skips some states.
        ([("", 10), ("", 60), ("", 64), ("", 64)], 64),
        ([("", 63), ("", 62), ("", 64), ("", 64), ("", 64), ("", 64)], 64),
    ],
)
def test_the_slowest_rank_counts(bars: list[tuple[str, int]], slowest: int) -> None:
    progress = fed("Load weight begin.", *(weights(done, 64, rank) for rank, done in bars))
    assert progress.progress == Progress(slowest, 64)


def test_a_bar_of_nothing_is_no_progress() -> None:
    assert fed("Load weight begin.", weights(0, 0)).progress is None
    assert fed("Load weight begin.", weights(5, 4)).progress == Progress(4, 4)
    assert fed("Load weight begin.", "| 3/4 [00:01<?]").progress is None


def test_the_second_begin_of_a_rank_is_the_draft_model() -> None:
    begin = "[2026-12-01 06:01:31 {}] Load weight begin."
    first = [begin.format("TP0"), begin.format("TP1")]
    assert not fed(*first).draft
    second = [*first, weights(4, 4), begin.format("TP1")]
    assert fed(*second).draft
    assert fed(*second).progress is None
    drafter = fed(*second, weights(1, 2), begin.format("TP0"))
    assert drafter.draft
    # The begin of another rank does not begin once more.
    assert drafter.progress == Progress(1, 2)
    # No estimate: the draft model is the smaller part of the stage.
    assert drafter.done is None


def test_the_draft_model_of_0_5_9_is_loaded_after_the_first_capture() -> None:
    texts = [
        "Load weight begin.",
        "Memory pool end.",
        "Capture cuda graph begin. This can take up to several minutes.",
        "Load weight begin.",
        weights(1, 2),
        "Capture draft cuda graph begin. This can take up to several minutes.",
        "Capturing batches (bs=8 avail_mem=1 GB): 0%| | 1/9 [00:00<?]",
        "Capture draft extend cuda graph begin. This can take up to several minutes.",
        "Uvicorn running on http://127.0.0.1:1",
    ]
    starts = [fed(*texts[:count]) for count in range(1, len(texts) + 1)]
    assert [start.draft for start in starts] == [False] * 3 + [True] * 5 + [False]
    assert [start.progress for start in starts] == [None] * 6 + [Progress(1, 9), None, None]
    assert starts[4].stage == "capturing graphs"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.text(max_size=20),
                st.sampled_from([line.text for line in recorded("h200_eagle3_0.5.17")[:60]]),
                st.builds(weights, st.integers(0, 9), st.integers(0, 9)),
            ),
            st.floats(-10, 1000),
        ),
        max_size=30,
    ),
    st.floats(-10, 1000),
)
def test_whatever_the_log_says(lines: list[tuple[str, float]], now: float) -> None:
    progress, order = StartProgress(), log_patterns().names
    for text, seconds in lines:
        before = progress.stage
        for line in lines_of(text.encode(errors="replace")):
            progress.feed(line, seconds)
        assert order.index(progress.stage) >= order.index(before)
        assert progress.progress is None or 0 <= progress.progress.share <= 1
        assert progress.done is None or 0 <= progress.done < 1
    took = progress.stages(now)
    assert list(took) == sorted(took, key=order.index)
    assert all(seconds >= 0 for seconds in took.values())
    if progress.stage != "ready":
        assert sum(took.values()) == pytest.approx(max(0, now, progress.last))
