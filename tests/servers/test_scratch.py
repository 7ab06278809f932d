"""A temporary folder for each server, private and with a short name."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweeper.servers import scratch
from sweeper.servers.tagged import ProcessRef, look_at


@pytest.fixture
def base() -> Iterator[Path]:
    """A temporary folder with a name short enough."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_what_is_written_is_read(tag: str, base: Path) -> None:
    folder = scratch.create(tag, base)
    owner = look_at(os.getpid())
    assert owner is not None
    note = scratch.read(folder)
    assert note is not None
    assert (note.tag, note.owner, note.leader) == (tag, owner.ref, None)
    assert note.boot == scratch.boot_id()
    scratch.note_leader(folder, ProcessRef(5, 6))
    scratch.note_seen(folder, [ProcessRef(7, 8)], ["psm_1"])
    note = scratch.read(folder)
    assert note is not None
    assert note.leader == ProcessRef(5, 6)
    assert note.seen == {ProcessRef(7, 8)}
    assert note.shared == {"psm_1"}


def test_others_are_kept_out(tag: str, base: Path) -> None:
    folder = scratch.create(tag, base)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert scratch.create(tag, base) == folder  # the same server again
    assert scratch.all_paths(base) == [folder]
    assert scratch.remove(folder) == ([str(folder)], [])
    assert scratch.all_paths(base) == []


def test_nothing_stays_of_a_folder_that_cannot_be_filled(
    tag: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, note: scratch.Note) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scratch, "_write_server", full)
    with pytest.raises(OSError, match="No space"):
        scratch.create(tag, base)
    assert scratch.all_paths(base) == []


def test_two_remove_it_at_once(tag: str, base: Path) -> None:
    for _ in range(10):
        folder = scratch.create(tag, base)
        for number in range(50):
            (folder / "tmp" / str(number)).touch()
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(scratch.remove, [folder] * 4))
        assert [problems for _, problems in answers] == [[]] * 4
        assert not folder.exists()


def test_a_link_is_not_followed(tag: str, base: Path) -> None:
    (base / "precious").mkdir()
    path = scratch.path_of(tag, base)
    path.symlink_to(base / "precious")
    with pytest.raises(FileExistsError):
        scratch.create(tag, base)
    assert scratch.remove(path) == ([], [])
    assert scratch.read(path) is None
    assert scratch.all_paths(base) == []
    assert (base / "precious").exists()


def test_a_unix_socket_fits(tag: str, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60)
    for base in (tmp_path, deep):
        folder = scratch.path_of(tag, base)
        longest = folder / "tmp" / "pymp-12345678" / "listener-12345678"
        assert len(str(longest)) <= 107
    assert scratch.path_of(tag, deep).parent == Path("/tmp")


def test_the_variables(tag: str, tmp_path: Path) -> None:
    added = scratch.environment(tmp_path, {"TMPDIR": "/big"})
    assert added["TMPDIR"] == str(tmp_path / "tmp")
    assert added["TORCHINDUCTOR_CACHE_DIR"].startswith("/big/torchinductor_")
    assert added["CUTE_DSL_CACHE_DIR"].startswith("/big/")
    own = {"TORCHINDUCTOR_CACHE_DIR": "/mine", "CUTE_DSL_CACHE_DIR": "/mine"}
    assert scratch.environment(tmp_path, own) == {"TMPDIR": str(tmp_path / "tmp")}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tag": "a"}', '{"tag": "a", "owner": 5}'])
def test_a_note_that_cannot_be_read(tag: str, base: Path, content: str) -> None:
    folder = scratch.create(tag, base)
    (folder / "server.json").write_text(content)
    assert scratch.read(folder) is None
    assert scratch.all_paths(base) == [folder]


def test_a_leader_without_a_folder(tmp_path: Path) -> None:
    scratch.note_leader(tmp_path / "none", ProcessRef(1, 2))
    assert scratch.read(tmp_path / "none") is None
