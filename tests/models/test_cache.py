"""An entry is complete or not there, whatever happens while it is built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from sweeper.errors import MachineError
from sweeper.models import cache
from sweeper.models.cache import MANIFEST, Recipe, build_once, cache_root, find, sha256_of

RECIPE = Recipe("thing", "a thing", {"version": "1"})


def write_thing(directory: Path) -> dict[str, str]:
    (directory / "sub").mkdir()
    (directory / "weights.bin").write_bytes(b"weights")
    (directory / "sub" / "more.txt").write_text("more")
    return {"library": "1.0"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SWEEPER_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/sweeper"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/someone/.cache/sweeper"),
        ({"SWEEPER_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/someone/.cache/sweeper"),
        ({}, "/home/someone/.cache/sweeper"),
        ({"SWEEPER_CACHE": "~/c"}, "/home/someone/c"),
    ],
)
def test_root(environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SWEEPER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == Path(expected)


def test_manifest_says_what_was_built_from_what(tmp_path: Path) -> None:
    entry = build_once(tmp_path / "cache", RECIPE, write_thing)
    manifest = json.loads((entry / MANIFEST).read_text())
    assert manifest == {
        "format": cache.FORMAT,
        "what": "a thing",
        "source": {"version": "1"},
        "made_with": {"library": "1.0"},
        "files": {
            "sub/more.txt": {"bytes": 4, "sha256": sha256_of(entry / "sub" / "more.txt")},
            "weights.bin": {"bytes": 7, "sha256": sha256_of(entry / "weights.bin")},
        },
    }
    # From the command: printf weights | sha256sum
    assert manifest["files"]["weights.bin"]["sha256"].startswith("9a129038")
    assert names(entry.parent) == {RECIPE.directory}


def test_second_call_does_not_build(tmp_path: Path) -> None:
    first = build_once(tmp_path, RECIPE, write_thing)

    def never(directory: Path) -> None:
        raise AssertionError

    assert build_once(tmp_path, RECIPE, never) == first == find(tmp_path, RECIPE)


def test_finished_entry_is_read_without_write_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = build_once(tmp_path, RECIPE, write_thing)

    def no_lock(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(cache, "_locked", no_lock)
    assert build_once(tmp_path, RECIPE, write_thing) == entry
    assert (entry / "weights.bin").stat().st_mode & 0o444 == 0o444


def test_another_source_is_another_entry(tmp_path: Path) -> None:
    old = build_once(tmp_path, RECIPE, write_thing)
    new = build_once(tmp_path, Recipe("thing", "a thing", {"version": "2"}), write_thing)
    assert old != new
    assert old.is_dir()


def _cut(entry: Path) -> None:
    (entry / "weights.bin").write_bytes(b"wei")


def _remove(entry: Path) -> None:
    (entry / "weights.bin").unlink()


def _no_manifest(entry: Path) -> None:
    (entry / MANIFEST).unlink()


def _half_manifest(entry: Path) -> None:
    (entry / MANIFEST).write_text('{"format": 1, "fil')


def _list_manifest(entry: Path) -> None:
    (entry / MANIFEST).write_text("[]")


@pytest.mark.parametrize("damage", [_cut, _remove, _no_manifest, _half_manifest, _list_manifest])
def test_damaged_entry_is_built_again(tmp_path: Path, damage: object) -> None:
    entry = build_once(tmp_path, RECIPE, write_thing)
    assert callable(damage)
    damage(entry)
    assert find(tmp_path, RECIPE) is None
    assert build_once(tmp_path, RECIPE, write_thing) == entry
    assert (entry / "weights.bin").read_bytes() == b"weights"
    assert names(tmp_path) == {RECIPE.directory}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MachineError])
def test_exception_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(directory: Path) -> None:
        write_thing(directory)
        raise error("interrupted")

    with pytest.raises(error):
        build_once(tmp_path, RECIPE, fail)
    assert names(tmp_path) == set()
    assert find(tmp_path, RECIPE) is None


def test_unwritable_folder_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(MachineError, match="a thing") as caught:
        build_once(tmp_path / "file" / "cache", RECIPE, write_thing)
    assert "SWEEPER_CACHE" in str(caught.value)


BUILDER = """
import sys, time
from pathlib import Path
from sweeper.models.cache import Recipe, build_once

folder, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def build(directory):
    (directory / "weights.bin").write_bytes(b"weights")
    with log.open("a") as file:
        file.write("built\\n")
    time.sleep(seconds)

build_once(folder, Recipe("thing", "a thing", {"version": "1"}), build)
"""


def start_builder(folder: Path, log: Path, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", textwrap.dedent(BUILDER), str(folder), str(log), str(seconds)]
    return subprocess.Popen(command)


def wait_for_build_to_begin(log: Path) -> None:
    deadline = time.monotonic() + 30
    while not log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_killed_builder_leaves_no_finished_entry_and_no_lock(tmp_path: Path, log: Path) -> None:
    folder = tmp_path / "cache"
    builder = start_builder(folder, log, 60)
    wait_for_build_to_begin(log)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    (leftover,) = names(folder)
    assert leftover.startswith(".")
    assert find(folder, RECIPE) is None

    entry = build_once(folder, RECIPE, write_thing)
    assert names(folder) == {entry.name}


def test_two_builders_at_once_build_once(tmp_path: Path, log: Path) -> None:
    folder = tmp_path / "cache"
    builders = [start_builder(folder, log, 0.5) for _ in range(3)]
    assert [builder.wait(60) for builder in builders] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert find(folder, RECIPE) is not None


def test_waiter_takes_over_from_a_killed_builder(tmp_path: Path, log: Path) -> None:
    folder = tmp_path / "cache"
    builder = start_builder(folder, log, 60)
    wait_for_build_to_begin(log)
    entries: list[Path] = []
    waiter = threading.Thread(
        target=lambda: entries.append(build_once(folder, RECIPE, write_thing))
    )
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait()
    waiter.join(30)
    assert entries == [find(folder, RECIPE)]
    assert names(folder) == {RECIPE.directory}
