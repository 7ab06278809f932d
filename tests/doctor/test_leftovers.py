"""A server of a running sweep is no leftover; what a dead owner left is ended and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.doctor import Findings, clean
from sweeper.doctor.findings import Server
from sweeper.doctor.leftovers import find_servers, watched_tags
from sweeper.servers import scratch, tagged
from sweeper.servers.ending import end_left_behind

# Starts a server and lives on; its watcher is killed when a line comes.
OWNER = """
import os, sys, time
from pathlib import Path
import psutil
from sweeper.servers.process import launch
server = launch([sys.executable, "-S", "-c", "import time; time.sleep(600)"],
                dict(os.environ), tag=sys.argv[1], log=Path(sys.argv[2]))
server.keep_watch()
print("up", flush=True)
sys.stdin.readline()
for found in psutil.process_iter(["cmdline"]):
    if "sweeper.servers.watcher" in (found.info["cmdline"] or ()) and sys.argv[1] in found.info["cmdline"]:
        found.kill()
        found.wait()
print("unwatched", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tag() -> Iterator[str]:
    value = f"test-{uuid.uuid4()}"
    yield value
    end_left_behind(value, grace=0.0)


@pytest.fixture
def owner(tag: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, tag, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def unwatch(owner: subprocess.Popen[bytes]) -> None:
    assert owner.stdin is not None
    assert owner.stdout is not None
    owner.stdin.write(b"\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == b"unwatched\n"


def found(tag: str) -> list[Server]:
    return [server for server in find_servers() if server.tag == tag]


def only(tag: str) -> Findings:
    """What concerns this test: other tests may have processes of their own."""
    return Findings({}, Path("python"), servers=tuple(found(tag)))


def test_a_running_server_is_left_alone(tag: str, owner: subprocess.Popen[bytes]) -> None:
    (server,) = found(tag)
    assert server.running
    assert server.owner is not None
    assert server.owner.pid == owner.pid
    assert server.folder == scratch.path_of(tag)
    assert [ref.pid for ref in server.processes] == [ref.pid for ref in tagged.find(tag)]
    assert clean(only(tag)) == []
    assert tagged.find(tag)


def test_an_owner_without_a_watcher_is_still_an_owner(
    tag: str, owner: subprocess.Popen[bytes]
) -> None:
    unwatch(owner)
    assert tag not in watched_tags()
    assert found(tag)[0].running


def test_a_server_whose_folder_is_lost_is_known_by_its_watcher(
    tag: str, owner: subprocess.Popen[bytes]
) -> None:
    scratch.remove(scratch.path_of(tag))
    (server,) = found(tag)
    assert server.folder is None
    assert server.running


def test_what_a_dead_owner_left_is_cleaned(tag: str, owner: subprocess.Popen[bytes]) -> None:
    unwatch(owner)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    findings = only(tag)
    assert findings.leftovers == findings.servers != ()
    assert clean(findings) == [
        f"ended the 1 process of {tag}",
        f"removed {scratch.path_of(tag)}",
    ]
    assert tagged.find(tag) == []
    assert found(tag) == []


def test_a_folder_in_another_temporary_folder_is_found(tag: str) -> None:
    """As when the doctor's shell has another TMPDIR than the sweep."""
    with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:
        folder = scratch.create(tag, Path(elsewhere))
        env = {**os.environ, **scratch.environment(folder, {}), tagged.TAG: tag}
        with subprocess.Popen(["/bin/sleep", "600"], env=env) as process:
            assert tagged.wait_until(lambda: bool(tagged.find(tag)), 10)
            (server,) = found(tag)
            assert server.folder == folder
            assert server.running  # we are its owner
            process.kill()


def test_an_earlier_start_of_the_machine(tag: str) -> None:
    folder = scratch.create(tag)
    note = scratch.read(folder)
    assert note is not None
    scratch._write_server(folder, replace(note, boot="another"))
    assert [server.running for server in found(tag)] == [False]
    assert clean(only(tag)) == [f"removed {folder}"]


def test_a_folder_without_a_note() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        folder = scratch.create("any", Path(base))
        (folder / "server.json").unlink()
        assert [s for s in find_servers([Path(base)]) if s.folder == folder] == []  # too young
        os.utime(folder, (1, 1))
        (server,) = [s for s in find_servers([Path(base)]) if s.folder == folder]
        assert clean(Findings({}, Path("python"), servers=(server,))) == [f"removed {folder}"]
