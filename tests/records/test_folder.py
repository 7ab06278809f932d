from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from sweeper.errors import MachineError
from sweeper.records.folder import new_folder


def test_two_sweeps_of_one_second_get_two_folders(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5)
    first, second = (new_folder(tmp_path, "nccl", now) for _ in range(2))
    assert first.path.name == "nccl-20260102-030405"
    assert second.path.name == "nccl-20260102-030405-2"
    assert (second.path / "trials").is_dir()


def test_a_place_that_cannot_hold_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot be made"):
        new_folder(tmp_path / "file", "nccl", datetime(2026, 1, 2))
