"""Writing a file in one step."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.errors import MachineError
from sweeper.records.files import write_atomically


@pytest.fixture(autouse=True)
def _strict_umask() -> Iterator[None]:
    """The mode must not depend on the umask of whoever exports."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_writes_the_text_for_everyone_to_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write_atomically(path, "größe\n")
    assert path.read_bytes() == "größe\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


def test_a_reader_of_the_old_file_keeps_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write_atomically(path, "old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(MachineError) as caught:
        write_atomically(path, "new")
    assert caught.value.where == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


def test_says_which_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="No such file") as caught:
        write_atomically(tmp_path / "missing" / "a.yaml", "new")
    assert "missing" in str(caught.value)
