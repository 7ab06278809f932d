"""Real processes: nothing that carries the tag may be left, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweeper.servers import tagged
from sweeper.servers.process import launch

# A server that ignores TERM, with a child in a session of its own.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""
OWNER = """
import os, sys, time
from pathlib import Path
from sweeper.servers.process import launch
command = [sys.executable, "-c", "import time; time.sleep(600)"]
server = launch(command, dict(os.environ), tag=sys.argv[1], log=Path(sys.argv[2]))
print("up", flush=True)
time.sleep(600)
"""

FAMILY = "import subprocess, time; subprocess.Popen(['/bin/sleep', '600']); time"


@pytest.fixture
def tag() -> Iterator[str]:
    value = f"test-{uuid.uuid4()}"
    yield value
    tagged.end(value, None, grace=0.0)


def wait_until(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def test_stop_ends_a_child_in_another_session(tag: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = launch([sys.executable, "-c", STUBBORN], dict(os.environ), tag=tag, log=log)
    wait_until(lambda: server.tail() == ["up"])
    assert len(tagged.find(tag)) == 2
    assert server.stop(grace=0.2) >= 1
    assert tagged.find(tag) == []
    assert server.exit_status == -signal.SIGKILL
    assert server.stop() == 0


def test_a_killed_owner_leaves_nothing(tag: str, tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tag, str(tmp_path / "log")], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    assert len(tagged.find(tag)) == 1
    owner.kill()
    owner.wait()
    wait_until(lambda: tagged.find(tag) == [])


def test_an_owner_killed_with_all_its_children_leaves_nothing(tag: str, tmp_path: Path) -> None:
    """As Ray does when it ends a worker: first the children, whatever they were for."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.replace("import time; time", FAMILY), tag, tmp_path / "log"],
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    wait_until(lambda: len(tagged.find(tag)) == 2)
    children = psutil.Process(owner.pid).children()
    for process in [*children, psutil.Process(owner.pid)]:
        process.kill()
    owner.wait()
    wait_until(lambda: tagged.find(tag) == [])


def test_the_environment_is_exactly_the_given_one(tag: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE'))"
    server = launch([sys.executable, "-c", code], {"A": "1"}, tag=tag, log=log)
    wait_until(lambda: server.exit_status is not None)
    server.stop()
    assert server.tail() == ["['A', 'SWEEPER_SERVER']"]


def test_a_command_that_does_not_exist(tag: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        launch([str(tmp_path / "none")], {}, tag=tag, log=tmp_path / "log")


def test_a_reused_number_is_not_signalled() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        tagged.ProcessRef(process.pid, started=1).signal(signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)  # a signal that was sent ends it well within this
        process.kill()


def test_a_child_that_hides_its_environment_is_found_by_session(tag: str, tmp_path: Path) -> None:
    code = "import subprocess; subprocess.run(['/bin/sleep', '600'], env={})"
    server = launch([sys.executable, "-c", code], dict(os.environ), tag=tag, log=tmp_path / "log")
    wait_until(lambda: len(tagged.find(tag, server.popen.pid)) == 2)
    assert len(tagged.find(tag)) == 1
    server.stop()
    assert tagged.find(tag, server.popen.pid) == []
