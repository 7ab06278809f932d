"""Every line of a log comes out once, however it arrives and whatever is in it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.engines.sglang import log_reader
from sweeper.engines.sglang.log_reader import LogLine, LogReader, lines_of

RECORDINGS = sorted(Path(__file__).with_name("recordings").glob("*.log"))


def whole(data: bytes) -> list[LogLine]:
    """The lines of a finished log."""
    return in_blocks([data])


def in_blocks(blocks: list[bytes]) -> list[LogLine]:
    pieces = log_reader._Pieces()
    lines = [line for block in blocks for piece in pieces.take(block) for line in lines_of(piece)]
    return lines + list(lines_of(pieces.end()))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


@pytest.mark.parametrize(
    ("prefix", "rank", "timestamp"),
    [
        ("[2026-12-01 06:01:31]", "", datetime(2026, 12, 1, 6, 1, 31)),
        ("[2026-12-01 06:01:31 TP0]", "TP0", datetime(2026, 12, 1, 6, 1, 31)),
        ("[2026-12-01 06:01:31.250 DP1 TP3]", "DP1 TP3", datetime(2026, 12, 1, 6, 1, 31, 250000)),
        ("[2026-12-01 06:01:31 DP0 ATTN_CP1 MOE_DP0 TP1 EP1]", "DP0 ATTN_CP1 MOE_DP0 TP1 EP1", ...),
        ("[2026-13-41 06:01:31 TP0]", "TP0", None),
        ("[rank0]:[W1201 06:23:19.431475722 ProcessGroupNCCL.cpp:1575]", "", None),
        ("(RayWorker pid=1) [t]", "", None),
    ],
)
def test_prefix(prefix: str, rank: str, timestamp: object) -> None:
    (line,) = whole(f"{prefix} Some words nobody knows.\n".encode())
    assert (line.text, line.rank) == (f"{prefix} Some words nobody knows.", rank)
    assert timestamp is ... or line.timestamp == timestamp
    assert (line.stage, line.progress) == (None, None)


@pytest.mark.parametrize(
    ("bar", "stage", "progress"),
    [
        (
            "Loading safetensors checkpoint shards:  12% Completed | 3/64 [00:01<00:20,  3.0it/s]",
            "loading weights",
            (3, 64),
        ),
        (
            "Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00]",
            "loading weights",
            (1, 1),
        ),
        (
            "Capturing batches (bs=8 avail_mem=95.89 GB):  40%|████      | 14/36 [00:02<00:01]",
            "capturing graphs",
            (14, 36),
        ),
        (
            "Capturing num tokens (num_tokens=7680 avail_mem=95 GB):   3%|▎  | 2/58 [01:20<31:08]",
            "capturing graphs",
            (2, 58),
        ),
        (
            "Capturing prefill shape (num_tokens=4 avail_mem=95 GB): 100%|███| 9/9 [01:20<31:08]",
            "capturing graphs",
            (9, 9),
        ),
        # Its description comes with the next state.
        ("  0%|          | 0/23 [00:00<?, ?it/s]", None, (0, 23)),
        ("DeepGEMM warmup:  12%|█▏        | 2048/16384 [00:11<01:20]", None, (2048, 16384)),
        # Several states in one line: the last one counts.
        ("a: 1%| | 1/9 [00:00<?]\x1b[Aa: 2%| | 2/9 [00:00<?]", None, (2, 9)),
        # Not yet drawn to its end: 1/58 may become 1/580.
        (
            "Capturing batches (bs=8 avail_mem=95.89 GB):  40%|████      | 1/58",
            "capturing graphs",
            None,
        ),
        ("model.bin:  50%|█████     | 1.05G/2.10G [00:11<00:11, 100MB/s]", None, None),
        (f"a: 1%| | {'9' * 5000}/9 [00:00<?]", None, None),
    ],
)
def test_progress_bars(bar: str, stage: str | None, progress: tuple[int, int] | None) -> None:
    (line,) = whole(bar.encode())
    assert (line.text, line.stage, line.progress) == (bar, stage, progress)


def test_what_the_logger_writes_behind_words_without_a_line_end() -> None:
    data = (
        b"nanobind: leaked 3 functions![2026-12-01 06:01:31 TP0] Memory pool end.\n"
        b"100%|##########| 36/36 [00:02<00:00, 15.5it/s][2026-12-01 06:01:32] A\n"
        b"[2026-12-01 06:01:33] B[2026-12-01 06:01:34 TP1] C\n"
        b"\n"
    )
    assert [(line.text, line.rank, line.stage) for line in whole(data)] == [
        ("nanobind: leaked 3 functions!", "", None),
        ("[2026-12-01 06:01:31 TP0] Memory pool end.", "TP0", "memory pool"),
        ("100%|##########| 36/36 [00:02<00:00, 15.5it/s]", "", None),
        ("[2026-12-01 06:01:32] A", "", None),
        ("[2026-12-01 06:01:33] B", "", None),
        ("[2026-12-01 06:01:34 TP1] C", "TP1", None),
    ]


def test_bytes_that_are_no_text_stay_readable() -> None:
    (line,) = whole(b"\xff\xfe\x00 Memory pool end. \xc3\xa9 \xc3\n")
    assert line.text == "\\xff\\xfe\x00 Memory pool end. é \\xc3"
    assert line.stage == "memory pool"


def test_a_line_comes_when_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(log)
    assert reader.read() == []  # no log yet
    append(log, b"[2026-12-01 06:01:31] Memory po")
    assert reader.read() == []
    assert [line.text for line in reader.unfinished()] == ["[2026-12-01 06:01:31] Memory po"]
    append(log, b"ol end.\r\nnext")
    assert [line.text for line in reader.read()] == ["[2026-12-01 06:01:31] Memory pool end."]
    assert reader.read() == []
    assert [line.text for line in reader.unfinished()] == ["next"]
    assert [line.text for line in reader.unfinished()] == ["next"]


def test_the_newest_state_of_a_bar_has_no_end_yet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(log)
    append(log, b"\rCapturing batches (bs=8 avail_mem=1 GB):   0%|   | 0/2 [00:00<?, ?it/s]")
    append(log, b"\rCapturing batches (bs=8 avail_mem=1 GB):  50%|#  | 1/2 [01:20<01:20, 80s/it]")
    assert [line.progress for line in reader.read()] == [(0, 2)]
    assert [line.progress for line in reader.unfinished()] == [(1, 2)]


def test_a_log_that_was_emptied_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(log)
    log.write_text("noise " * 50 + "\nMemory pool end.\nnot fin")
    assert reader.read()[-1].stage == "memory pool"
    log.write_text("Uvicorn running on http://127.0.0.1:1\n")
    # What had no end when the log was emptied is not lost.
    assert [(line.text[:7], line.stage) for line in reader.read()] == [
        ("not fin", None),
        ("Uvicorn", "http up"),
    ]


def test_a_log_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    reader = LogReader(log)
    log.write_text("old\n")
    assert [line.text for line in reader.read()] == ["old"]
    other.write_text("new and longer\n")
    other.replace(log)
    assert [line.text for line in reader.read()] == ["new and longer"]
    log.unlink()
    assert reader.read() == []


def test_a_log_without_line_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogReader(log)
    append(log, "ä".encode() * 700_000 + b"\nMemory pool end.\n")
    lines = reader.read()
    assert "".join(line.text for line in lines[:-1]) == "ä" * 700_000
    assert max(len(line.text.encode()) for line in lines) <= 1 << 18
    assert lines[-1].stage == "memory pool"


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_nothing_of_a_recording_is_lost(recording: Path) -> None:
    data = recording.read_bytes()
    text = data.decode().replace("\r", "").replace("\n", "")
    assert "".join(line.text for line in whole(data)) == text


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("piece", [977, 20_000])
def test_a_recording_that_grows(recording: Path, piece: int, tmp_path: Path) -> None:
    data, log = recording.read_bytes(), tmp_path / "log"
    reader, lines = LogReader(log), []
    for begin in range(0, len(data), piece):
        append(log, data[begin : begin + piece])
        lines += reader.read()
    assert lines + reader.unfinished() == whole(data)


# Blocks of what a log is made of, and of anything.
_BITS = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"[2026-12-01 06:01:31 TP0] ",
            b"[2026-12-01 06:01:31",
            b"Load weight begin",
            "Capturing batches (bs=8 avail_mem=1 GB):  40%|█▍| 1".encode(),
            b"4/36 [00:02",
            "😀".encode(),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_BITS, max_size=40))
def test_any_blocks_give_the_same_lines(blocks: list[bytes]) -> None:
    assert in_blocks(blocks) == whole(b"".join(blocks))


@settings(max_examples=300, deadline=None)
@given(st.lists(_BITS, max_size=40), st.integers(8, 40))
def test_also_where_lines_are_too_long(blocks: list[bytes], longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "_LONGEST_LINE", longest)
        data = b"".join(blocks)
        lines = in_blocks(blocks)
        assert lines == whole(data)
        pieces = log_reader._Pieces()
        cut = [*pieces.take(data), pieces.end()]
        assert max(map(len, cut)) <= longest
        assert b"".join(cut) == data.replace(b"\r", b"").replace(b"\n", b"")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=200))
def test_a_character_is_never_cut(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "_LONGEST_LINE", 8)
        assert "".join(line.text for line in whole(text.encode())) == text
