"""Lines as SGLang writes them, each to its stream."""

from __future__ import annotations

import re
import time

import pytest

from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.log import Log


def log(**more: object) -> Log:
    launched = time.mktime((2026, 12, 1, 6, 32, 31, 0, 0, -1))
    return Log(Clock(launched, time.monotonic()), **more)  # type: ignore[arg-type]


def test_the_logger_and_uvicorn_write_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    log(tag=" TP3").info("Load weight begin.")
    log().uvicorn("Started server process [7]")
    log().uvicorn("[Errno 98] in use", "error")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "[2026-12-01 06:32:31 TP3] Load weight begin.",
        "[2026-12-01 06:32:31] INFO:     Started server process [7]",
        "[2026-12-01 06:32:31] ERROR:    [Errno 98] in use",
    ]


def test_access_lines_go_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    log().access("127.0.0.1:48434", "GET", "/model_info", 200)
    assert capfd.readouterr() == (
        '[2026-12-01 06:32:31] INFO:     127.0.0.1:48434 - "GET /model_info HTTP/1.1" 200 OK\n',
        "",
    )


def test_a_level_hides_what_is_below_and_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    quiet = log(level="warning", http_level="warning")
    quiet.info("ready")
    quiet.uvicorn("Started")
    quiet.access("127.0.0.1:1", "GET", "/health", 200)
    quiet.warning("careful")
    quiet.raw("\r 50%")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "[2026-12-01 06:32:31] careful\n\r 50%")


def test_a_foreign_log_has_other_words_and_other_timestamps(
    capfd: pytest.CaptureFixture[str],
) -> None:
    foreign = log(tag=" TP0", foreign=True)
    foreign.info("Load weight begin. avail mem=1.00 GB")
    line = capfd.readouterr().err
    assert re.fullmatch(
        r"2026-12-01T06:32:31\.\d{3}Z \|I\| TP0: Fetching parameters; avail mem=1\.00 GB\n", line
    )


def test_milliseconds(capfd: pytest.CaptureFixture[str]) -> None:
    log(milliseconds=True).info("x")
    assert re.match(r"\[2026-12-01 06:32:31\.\d{3}\] x", capfd.readouterr().err)
