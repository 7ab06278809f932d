"""Real processes: a stopped server leaves nothing, and the stop says what it verified."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.servers import process, scratch, tagged
from sweeper.servers.ports import port_is_free, reserve
from sweeper.servers.process import ServerProcess, launch

FOREVER = "import time; time.sleep(600)"
# A server that ignores TERM, with a child in a session of its own.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""
# A server that drains for a moment, whose child ignores TERM and has left its session.
LEAKING = """
import os, signal, subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
started = subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True, stdout=subprocess.PIPE)
started.stdout.readline()
def drain(*_):
    time.sleep(1.0)
    print("drained", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, drain)
print("up", flush=True)
while True: time.sleep(600)
"""
# Its child leaves the session, writes over its environment and is given to init.
HIDING = """
import os, subprocess, sys, time
child = '''
import os, subprocess, sys, time
import setproctitle
setproctitle.setproctitle("x" * len(open("/proc/self/environ").read()) * 2)
sys.stdin.readline()
print("hidden", flush=True)
time.sleep(600)
'''
middle = '''
import subprocess, sys
p = subprocess.Popen([sys.executable, "-c", %r], start_new_session=True)
sys.stdin.readline()
''' % child
started = subprocess.Popen([sys.executable, "-c", middle], stdin=subprocess.PIPE)
print("up", flush=True)
time.sleep(600)
"""
# Leaves what SGLang leaves: a file in the temporary folder and shared memory.
LITTERING = """
import sys, tempfile, time
from multiprocessing import resource_tracker, shared_memory
tempfile.NamedTemporaryFile(delete=False).close()
memory = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(memory._name, "shared_memory")
print(memory.name, flush=True)
sys.stdin.readline() if len(sys.argv) > 1 else time.sleep(600)
"""

Start = Callable[..., ServerProcess]


@pytest.fixture
def start(tag: str, tmp_path: Path) -> Start:
    """Start a Python program and wait for its first line."""

    def begin(code: str, *flags: str, **options: object) -> ServerProcess:
        command = [sys.executable, *flags, "-c", code]
        log = tmp_path / "server.log"
        server = launch(command, dict(os.environ), tag=tag, log=log, **options)  # type: ignore[arg-type]
        if "print(" in code:
            assert tagged.wait_until(lambda: bool(server.tail()), 20)
        return server

    return begin


def test_a_stop_ends_a_child_in_another_session(tag: str, start: Start) -> None:
    server = start(STUBBORN)
    assert len(tagged.find(tag)) == 2
    stopped = server.stop(grace=0.2)
    assert stopped.killed == 2
    assert stopped.clean
    assert stopped.exit_status == server.exit_status == -signal.SIGKILL
    assert tagged.find(tag) == []
    assert server.stop() is stopped


def test_a_stop_takes_the_drain_and_at_most_a_second(tag: str, start: Start) -> None:
    server = start(LEAKING)
    stopped = server.stop()
    assert server.tail()[-1] == "drained"
    assert stopped.exit_status == 0
    assert stopped.killed == 1
    assert 1.0 <= stopped.seconds <= 2.0
    assert tagged.find(tag) == []


def test_a_server_that_died_leaves_its_children_to_us(tag: str, start: Start) -> None:
    server = start(LEAKING)
    server.popen.kill()
    server.popen.wait()
    assert len(tagged.find(tag)) == 1
    stopped = server.stop()
    assert stopped.exit_status == -signal.SIGKILL
    assert stopped.killed == 1
    assert stopped.seconds < 1.5  # nobody is there to drain
    assert tagged.find(tag) == []


def test_a_child_without_any_sign_is_remembered(tag: str, start: Start) -> None:
    server = start(HIDING)
    session = server.popen.pid
    assert tagged.wait_until(lambda: len(server.processes()) == 3, 20)
    hidden = [ref for ref in server.processes() if tagged.look_at(ref.pid).session != session]  # type: ignore[union-attr]
    assert len(hidden) == 1
    assert tagged.wait_until(lambda: not tagged.has_tag(hidden[0].pid, tag), 20)
    middle = [ref for ref in server.processes() if ref not in hidden and ref.pid != session]
    middle[0].signal(signal.SIGKILL)
    assert tagged.wait_until(lambda: len(server.processes()) == 2, 20)
    assert hidden[0] in server.processes()
    assert hidden[0] not in tagged.find(tag, session)
    assert server.stop().clean
    assert not hidden[0].alive()


def test_files_and_shared_memory_are_removed(start: Start) -> None:
    server = start(LITTERING)
    memory = Path("/dev/shm") / server.tail()[0]
    files = list((server.scratch / "tmp").iterdir())
    assert memory.exists()
    assert [file.name[:3] for file in files] == ["tmp"]
    stopped = server.stop()
    assert set(stopped.removed) == {str(memory), str(server.scratch)}
    assert not memory.exists()
    assert not server.scratch.exists()


def test_shared_memory_of_a_server_that_crashed(start: Start) -> None:
    server = start(LITTERING)
    memory = Path("/dev/shm") / server.tail()[0]
    server.keep_watch()
    server.popen.kill()
    server.popen.wait()
    assert memory.exists()
    assert str(memory) in server.stop().removed
    assert not memory.exists()


def test_the_ports_are_verified_and_given_back(start: Start) -> None:
    code = """
import socket, sys, time
held = socket.create_server(("127.0.0.1", PORT))
print("up", flush=True)
time.sleep(600)
"""
    block = reserve(2)
    port = block.ports[0]
    server = start(code.replace("PORT", str(port)), ports=block)
    assert not port_is_free(port)
    stopped = server.stop()
    assert stopped.port_free is True
    assert stopped.clean
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", port))


def test_a_port_that_stays_in_use_is_a_problem(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PORT_LIMIT", 0.1)
    block = reserve(1)
    server = start(FOREVER, "-S", ports=block)
    with socket.create_server(("127.0.0.1", block.ports[0])):
        stopped = server.stop()
    assert stopped.port_free is False
    assert stopped.problems == (f"port {block.ports[0]} is still in use",)


def test_gpu_memory_comes_back(start: Start) -> None:
    answers = [(1 << 30,), (40 << 30,), (20 << 30,), (1 << 30,)]

    def memory() -> tuple[int, ...]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    stopped = start(FOREVER, "-S", gpu_memory=memory).stop()
    assert stopped.gpu_memory_back is True
    assert len(answers) == 1


def test_gpu_memory_that_does_not_come_back(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MEMORY_LIMIT", 0.2)
    answers = iter([(0, 0)])
    stopped = start(FOREVER, "-S", gpu_memory=lambda: next(answers, (0, 40 << 30))).stop()
    assert stopped.gpu_memory_back is False
    assert "0.0, 40.0 GiB" in stopped.problems[0]


def test_nothing_to_verify(start: Start) -> None:
    stopped = start(FOREVER, "-S").stop()
    assert (stopped.port_free, stopped.gpu_memory_back) == (None, None)
    assert stopped.exit_status == -signal.SIGTERM


def test_the_environment_is_the_given_one(tag: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE'))"
    server = launch([sys.executable, "-c", code], {"A": "1"}, tag=tag, log=log)
    assert tagged.wait_until(lambda: server.exit_status is not None, 20)
    server.stop()
    added = ["SWEEPER_SERVER", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "CUTE_DSL_CACHE_DIR"]
    assert server.tail() == [str(sorted(["A", *added]))]


def test_a_command_that_does_not_exist(tag: str, tmp_path: Path) -> None:
    block = reserve(1)
    with pytest.raises(FileNotFoundError):
        launch([str(tmp_path / "none")], {}, tag=tag, log=tmp_path / "log", ports=block)
    assert not scratch.path_of(tag).exists()
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", block.ports[0]))


def test_a_stranger_in_the_next_session_is_left_alone(start: Start) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as stranger:
        server = start(FOREVER, "-S")
        begin = time.monotonic()
        assert server.stop().clean
        assert time.monotonic() - begin < 5
        assert stranger.poll() is None
        stranger.kill()
