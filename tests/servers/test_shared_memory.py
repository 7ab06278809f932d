"""Only what a server made and nobody uses is removed."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from sweeper.servers import shared_memory
from sweeper.servers.tagged import ProcessRef

SELF = ProcessRef(os.getpid(), 0)


def test_mapped_and_open_files_are_seen(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("mapped one", "open", "unused", "deleted", "models/weights"):
        (tmp_path / name).write_bytes(b"x" * 4096)
    with (tmp_path / "mapped one").open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 4096)
    with (
        memory,
        (tmp_path / "open").open(),
        (tmp_path / "deleted").open(),
        (tmp_path / "models/weights").open(),
    ):
        (tmp_path / "deleted").unlink()
        seen = shared_memory.shared_memory_of([SELF], tmp_path)
        assert seen == {"mapped one", "open"}
        assert shared_memory.remove(seen, set(), tmp_path) == ([], [])  # still in use
    removed, problems = shared_memory.remove(seen, set(), tmp_path)
    assert removed == [str(tmp_path / "mapped one"), str(tmp_path / "open")]
    assert problems == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x")
    before = shared_memory.files(tmp_path)
    (tmp_path / "psm_1").write_bytes(b"x")
    removed, _ = shared_memory.remove({"model", "psm_1", "gone"}, before, tmp_path)
    assert removed == [str(tmp_path / "psm_1")]
    assert (tmp_path / "model").exists()


def test_a_new_file_under_an_old_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = shared_memory.files(tmp_path)
    (tmp_path / "b").write_bytes(b"y")
    (tmp_path / "b").rename(tmp_path / "a")
    assert shared_memory.remove({"a"}, before, tmp_path)[0] == [str(tmp_path / "a")]


def test_folders_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert shared_memory.remove({"folder", "link"}, set(), tmp_path) == ([], [])


def test_a_machine_without_shared_memory(tmp_path: Path) -> None:
    assert shared_memory.files(tmp_path / "none") == set()


def test_the_real_folder() -> None:
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=64)
    try:
        assert memory.name in shared_memory.shared_memory_of([SELF])
        assert memory.name in {name for name, _ in shared_memory.files()}
    finally:
        memory.close()
        memory.unlink()
