"""Whoever is killed, the server is gone soon after, or goes on being watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sweeper.servers import scratch, tagged
from sweeper.servers.process import launch
from sweeper.servers.tagged import ProcessRef
from sweeper.servers.watcher import leader_in

OWNER = """
import os, sys, time
from pathlib import Path
from sweeper.servers.process import launch
server = launch([sys.executable, "-c", SERVER], dict(os.environ), tag=sys.argv[1], log=Path(sys.argv[2]))
AFTER
while "up" not in " ".join(server.tail()): time.sleep(0.02)
server.keep_watch()
print("up", flush=True)
time.sleep(600)
"""
# What SGLang leaves: files, shared memory, and a child that ignores TERM.
SERVER = """
import os, signal, subprocess, sys, tempfile, time
from multiprocessing import resource_tracker, shared_memory
tempfile.NamedTemporaryFile(delete=False).close()
memory = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(memory._name, "shared_memory")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print(memory.name, "up", flush=True)
time.sleep(600)
"""


def start_owner(tag: str, log: Path, after: str = "") -> subprocess.Popen[bytes]:
    code = OWNER.replace("SERVER", repr(SERVER)).replace("AFTER", after)
    owner = subprocess.Popen([sys.executable, "-c", code, tag, str(log)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    return owner


def watchers(tag: str) -> list[psutil.Process]:
    return [
        found
        for found in psutil.process_iter(["cmdline"])
        if "sweeper.servers.watcher" in (found.info["cmdline"] or ())
        and tag in found.info["cmdline"]
    ]


def nothing_left(tag: str, log: Path) -> bool:
    memory = Path("/dev/shm") / log.read_text().split()[0]
    return not (
        tagged.find(tag) or scratch.path_of(tag).exists() or memory.exists() or watchers(tag)
    )


def test_a_killed_owner_leaves_nothing(tag: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    owner = start_owner(tag, log)
    assert len(tagged.find(tag)) == 3  # with Python's own tracker of shared memory
    assert not nothing_left(tag, log)
    owner.kill()
    owner.wait()
    assert tagged.wait_until(lambda: nothing_left(tag, log), 10)


def test_an_owner_killed_with_all_its_children_leaves_nothing(tag: str, tmp_path: Path) -> None:
    """As Ray does when it ends a worker: first the children, whatever they were for."""
    log = tmp_path / "log"
    owner = start_owner(tag, log, "import subprocess; subprocess.Popen(['/bin/sleep', '600'])")
    children = psutil.Process(owner.pid).children()
    assert len(children) == 2
    for process in [*children, psutil.Process(owner.pid)]:
        process.kill()
    owner.wait()
    assert tagged.wait_until(lambda: nothing_left(tag, log), 10)


def test_a_killed_watcher_is_replaced(tag: str, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    server = launch(command, dict(os.environ), tag=tag, log=tmp_path / "log")
    try:
        (first,) = watchers(tag)
        assert server.watched()
        assert not server.ensure_watcher()
        first.send_signal(signal.SIGTERM)
        first.send_signal(signal.SIGINT)
        first.kill()
        assert tagged.wait_until(lambda: not server.watched(), 10)
        assert server.exit_status is None
        assert server.ensure_watcher()
        assert server.watched()
        (second,) = watchers(tag)
        assert second.pid != first.pid
    finally:
        server.stop()
    assert tagged.wait_until(lambda: not watchers(tag), 10)
    assert not server.ensure_watcher()
    assert not server.watched()


def test_the_new_watcher_knows_the_server(tag: str, tmp_path: Path) -> None:
    """The owner's watcher is killed, then the owner."""
    log = tmp_path / "log"
    after = """
import psutil
for found in psutil.process_iter(["cmdline"]):
    if "sweeper.servers.watcher" in (found.info["cmdline"] or ()) and sys.argv[1] in found.info["cmdline"]:
        found.kill()
        found.wait()
assert server.ensure_watcher()
"""
    owner = start_owner(tag, log, after)
    owner.kill()
    owner.wait()
    assert tagged.wait_until(lambda: nothing_left(tag, log), 10)


def test_a_watcher_costs_nothing_while_it_waits(tag: str, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    server = launch(command, dict(os.environ), tag=tag, log=tmp_path / "log")
    (watcher,) = watchers(tag)
    asleep = lambda: Path(f"/proc/{watcher.pid}/wchan").read_text()  # noqa: E731
    try:
        # Asleep in a read of the pipe: no timer, no poll.
        assert tagged.wait_until(lambda: watcher.status() == psutil.STATUS_SLEEPING, 10)
        assert tagged.wait_until(lambda: "pipe" in asleep() or asleep() == "0", 10)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("lines", "leader"),
    [
        ([], None),
        (["12 34"], ProcessRef(12, 34)),
        (["12"], None),
        (["12 x"], None),
        (["done"], None),
    ],
)
def test_what_the_owner_says(lines: list[str], leader: ProcessRef | None) -> None:
    assert leader_in(lines) == leader
