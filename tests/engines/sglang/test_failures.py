"""The table of failures is complete, consistent, and finds nothing in logs of good servers."""

from __future__ import annotations

import re
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from sweeper.engines.sglang.classify import read_lines
from sweeper.engines.sglang.failures import FailureClass, failure_table, failures, parse
from sweeper.engines.sglang.log_patterns import log_patterns

RECORDINGS = Path(__file__).with_name("recordings")
GOOD = (
    "cpu_ready_0.5.23.log",
    "cpu_tp2_0.5.23.log",
    "h200_eagle3_0.5.17.log",
    "h200_first_start_flashinfer_0.5.17.log",
    "h200_first_start_triton_0.5.17.log",
    "h200_ngram_0.5.17.log",
    "h200_triton_0.5.17.log",
)
BLAME = {
    "configuration": """bad_flag forbidden_by_engine backend_not_for_gpu missing_kernel_library
        oom_weights oom_kv_pool oom_graph_capture oom_under_load not_enough_memory_for_kv
        graph_capture_failed nccl_invalid_usage refused_requests""",
    "machine": """import_error model_missing unbalanced_gpu_memory port_in_use wrong_server
        rank_killed disk_full gpu_lost gpu_throttled stopped_from_outside launch_failed
        not_stopped sweeper_error gpus_busy worker_died""",
    "unknown": """nccl_init_hang nccl_collective_timeout nccl_error watchdog_timeout
        scheduler_exception host_out_of_memory dead_behind_http warmup_failed hung_start
        start_timeout hung_under_load level_timeout request_errors read_back_failed crashed
        exited""",
}
NO_USE = """import_error model_missing disk_full gpu_lost launch_failed not_stopped
    sweeper_error gpus_busy"""
EVERY = sorted(failures().values(), key=lambda failure: failure.kind)
SMALL = """
words = ["error"]
harmless = []
ending = "SIGQUIT"
places = {}
[[failure]]
kind = "one"
blame = "unknown"
retry = 1
advice = "Do this."
source = "here"
"""


def good_lines(recording: str) -> list[str]:
    """Until somebody stopped the server."""
    lines = read_lines(RECORDINGS / recording)
    stopped = next((i for i, line in enumerate(lines) if "SIGTERM received" in line), len(lines))
    return lines[:stopped]


def test_every_class_and_who_is_to_blame() -> None:
    assert {one.kind: one.blame for one in EVERY} == {
        kind: blame for blame, kinds in BLAME.items() for kind in kinds.split()
    }


@pytest.mark.parametrize("failure", EVERY, ids=lambda failure: failure.kind)
def test_retries(failure: FailureClass) -> None:
    if failure.blame == "configuration" or failure.kind in NO_USE.split():
        assert failure.retry == 0
    elif failure.blame == "unknown":
        assert failure.retry == 1
    else:
        assert failure.retry >= 1


@pytest.mark.parametrize("failure", EVERY, ids=lambda failure: failure.kind)
def test_words_for_people(failure: FailureClass) -> None:
    assert failure.advice[0].isupper()
    assert failure.advice.count(". ") == 0
    assert len(failure.advice) < 200
    assert failure.source
    assert all(sign.source for sign in failure.sign)


def test_stages_exist() -> None:
    known = {*log_patterns().names, "serving"}
    table = failure_table()
    assert set(table.places) <= known
    assert {stage for one in EVERY for sign in one.sign for stage in sign.stages} <= known


def test_what_is_seen_is_a_class() -> None:
    assert {seen for one in EVERY for sign in one.sign for seen in sign.seen} <= set(failures())


@pytest.mark.parametrize("recording", GOOD)
@pytest.mark.parametrize("failure", EVERY, ids=lambda failure: failure.kind)
def test_no_sign_in_a_good_log(failure: FailureClass, recording: str) -> None:
    harmless = failure_table().harmless
    lines = [line for line in good_lines(recording) if not any(p.search(line) for p in harmless)]
    assert len(lines) > 30
    for sign in failure.sign:
        if sign.line:
            assert [line for line in lines if sign.line.search(line)] == []


def test_harmless_lines_are_really_there() -> None:
    """All settings in one line are full of words such as timeout and nccl_port."""
    lines = [line for recording in GOOD for line in good_lines(recording)]
    settings = [line for line in lines if "server_args=" in line]
    assert len(settings) == len(GOOD)
    assert all("timeout" in line for line in settings)
    assert all(failure_table().harmless[0].search(line) for line in settings)


def spellings(tokens: Any) -> list[str]:
    """What a pattern can match, in small letters, with a star for what may be anything."""
    found = [""]
    for code, argument in tokens:
        if code is _constants.LITERAL:
            ways = [chr(argument).lower()]
        elif code is _constants.SUBPATTERN:
            ways = spellings(argument[-1])
        elif code is _constants.BRANCH:
            ways = [way for branch in argument[1] for way in spellings(branch)]
        elif code is _constants.IN and all(one is _constants.LITERAL for one, _ in argument):
            ways = list({chr(letter).lower() for _, letter in argument})
        elif code is _constants.AT:
            ways = [""]
        elif code is _constants.MAX_REPEAT and argument[:2] == (0, 1):
            ways = ["", *spellings(argument[2])]
        else:
            ways = ["*"]
        found = [before + way for before in found for way in ways]
    return found


@pytest.mark.parametrize("failure", EVERY, ids=lambda failure: failure.kind)
def test_the_quick_look_misses_no_sign(failure: FailureClass) -> None:
    """Every text that a sign can match has one of the words by which lines are chosen."""
    table = failure_table()
    patterns = [sign.line for sign in failure.sign if sign.line]
    for pattern in [*patterns, table.ending, *table.places.values()]:
        for spelling in spellings(_parser.parse(pattern.pattern)):
            assert any(word in spelling for word in table.words), spelling


def test_a_table() -> None:
    (one,) = parse(SMALL).failure
    assert (one.kind, one.blame, one.retry, one.sign) == ("one", "unknown", 1, ())


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace('"unknown"', '"me"'),
        SMALL.replace('"unknown"', '"configuration"'),  # and tried again
        SMALL.replace("retry", "retries"),
        SMALL.replace("Do this.", "Do this. Do that."),
        SMALL.replace("Do this.", "Do this"),
        SMALL.replace('"SIGQUIT"', '"("'),
        SMALL + SMALL[SMALL.index("[[") :],
        SMALL + '[[failure.sign]]\nlevel = "cause"\nsource = "here"\n',
        SMALL + '[[failure.sign]]\nlevel = "cause"\nsource = "here"\nseen = ["x"]\nunless = "y"\n',
        SMALL + '[[failure.sign]]\nlevel = "maybe"\nsource = "here"\nline = "x"\n',
        SMALL + '[[failure.sign]]\nlevel = "cause"\nline = "x"\n',
    ],
)
def test_a_wrong_table(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_no_pattern_repeats_without_a_limit() -> None:
    """A log may hold anything, and a class must be found within two seconds."""
    table = failure_table()
    patterns = [
        p for one in EVERY for s in one.sign for p in (s.line, s.within, s.unless, s.kernel)
    ]
    for pattern in [*filter(None, patterns), *table.harmless, *table.places.values()]:
        assert not re.search(r"(?<!\\)[.\])]\*|\\w[*+]|\.\+", pattern.pattern), pattern.pattern
