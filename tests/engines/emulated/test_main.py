"""The emulated engine from its command line on: flags, environment, and the log of a start."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from emulated_process import READY, Emulated, stage_of, wait_until

from sweeper.engines.sglang.log_patterns import log_patterns


def test_the_log_of_a_start_passes_the_stages_in_their_order(
    emulated: Callable[..., Emulated],
) -> None:
    one = emulated("--tp-size", "8", EMULATED_PROFILE="kimi-k2.5-8gpu")
    begin = time.monotonic()
    one.wait_for(READY)
    assert time.monotonic() - begin < 5  # six and a half minutes at speed 300
    lines = re.split(r"[\r\n]", one.text)
    told = [stage for stage in map(stage_of, lines) if stage]
    order = list(log_patterns().names)
    seen = list(dict.fromkeys(told))
    assert seen == order
    ends = [line for line in lines if "Load weight end." in line]
    assert len(ends) == 8
    assert "elapsed=313.00 s" in next(line for line in ends if " TP0]" in line)
    assert any("64/64" in line for line in lines)
    assert {process.cmdline()[0].rstrip("\0") for process in one.left} == {
        *(f"sglang::scheduler_TP{rank}" for rank in range(8)),
        "sglang::detokenizer",
    }
    stamps = re.findall(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", one.text, re.M)
    first, last = (
        time.mktime(time.strptime(s, "%Y-%m-%d %H:%M:%S")) for s in (stamps[0], stamps[-1])
    )
    assert 340 < last - first < 420


@pytest.mark.parametrize("fault", ["quiet_log", "other_log_format"])
def test_a_log_that_nobody_can_read(fault: str, emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT=fault)

    def healthy() -> bool:
        try:
            return httpx.get(f"{one.url}/health").status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(healthy, 20)
    assert READY not in one.text
    lines = re.split(r"[\r\n]", one.text)
    bars = {"loading weights", "capturing graphs", "starting"} if fault == "quiet_log" else set()
    assert {stage for stage in map(stage_of, lines) if stage} == bars


def test_a_slow_load_moves_its_bar_ten_times_as_long(emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT="slow_load")
    one.wait_for(READY)
    assert "elapsed=300.00 s" in one.text  # 30 in this profile


def test_flags_that_are_refused(emulated: Callable[..., Emulated], tmp_path: Path) -> None:
    known = tmp_path / "flags.json"
    known.write_text("[]", encoding="utf-8")
    one = emulated(EMULATED_PARSER=str(known))
    assert one.ended() == 2
    assert "sglang serve: error: unrecognized arguments: --model-path" in one.text


def test_an_unknown_fault_is_an_error_that_lists_them(emulated: Callable[..., Emulated]) -> None:
    one = emulated(EMULATED_FAULT="nonsense")
    assert one.ended() == 1
    assert "oom_weights" in one.text
