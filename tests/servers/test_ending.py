"""TERM, wait, KILL; and a server without an owner is ended by what it left written."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from sweeper.servers import scratch, tagged
from sweeper.servers.ending import end_left_behind, end_processes
from sweeper.servers.tagged import ProcessRef

PRINTS_SIGNALS = """
import os, signal, sys, time
def show(number, frame):
    print(signal.Signals(number).name, flush=True)
    if sys.argv[1] == "ends": os._exit(0)
signal.signal(signal.SIGTERM, show)
print("up", flush=True)
while True: time.sleep(600)
"""


class Program:
    """A child that tells which signals came."""

    def __init__(self, what: str, env: dict[str, str] | None = None) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-S", "-c", PRINTS_SIGNALS, what],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=env,
        )
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == "up\n"
        entry = tagged.look_at(self.popen.pid)
        assert entry is not None
        self.ref = entry.ref

    def signals(self) -> list[str]:
        """After its end."""
        assert self.popen.stdout is not None
        with self.popen:
            return self.popen.stdout.read().split()


def living(*programs: Program) -> list[ProcessRef]:
    return [program.ref for program in programs if program.ref.alive()]


def test_the_leader_alone_is_asked_first() -> None:
    leader, child = Program("ends"), Program("ends")
    killed, left = end_processes(
        lambda: living(leader, child), grace=10, leader=leader.ref, rest=10
    )
    assert (killed, left) == (0, [])
    assert leader.signals() == child.signals() == ["SIGTERM"]


def test_a_leader_that_does_not_end_takes_all_with_it() -> None:
    leader, child = Program("stays"), Program("stays")
    killed, left = end_processes(lambda: living(leader, child), grace=0.2, leader=leader.ref)
    assert (killed, left) == (2, [])
    assert leader.signals() == ["SIGTERM"]
    assert child.signals() == []


def test_no_grace_is_kill() -> None:
    program = Program("ends")
    assert end_processes(lambda: living(program), grace=0.0) == (1, [])
    assert program.signals() == []


def test_without_a_leader_all_are_asked() -> None:
    programs = [Program("ends"), Program("stays")]
    killed, left = end_processes(lambda: living(*programs), grace=0.3)
    assert (killed, left) == (1, [])
    assert [program.signals() for program in programs] == [["SIGTERM"], ["SIGTERM"]]


def test_nothing_to_end() -> None:
    assert end_processes(list, grace=10) == (0, [])


def test_left_behind_without_a_scratch_folder(tag: str) -> None:
    program = Program("stays", {**os.environ, tagged.TAG: tag})
    stopped = end_left_behind(tag, grace=0.1)
    assert stopped.killed == 1
    assert stopped.clean
    program.signals()


def test_left_behind_is_known_from_the_scratch_folder(tag: str) -> None:
    """A process without the tag, in a session of its own, that its owner saw."""
    program = Program("ends")
    folder = scratch.create(tag)
    scratch.note_seen(folder, [program.ref], [])
    stopped = end_left_behind(tag)
    assert program.signals() == ["SIGTERM"]
    assert stopped.removed == (str(folder),)


def test_a_note_of_an_earlier_start_of_the_machine_ends_nobody(tag: str) -> None:
    program = Program("ends")
    folder = scratch.create(tag)
    scratch.note_leader(folder, program.ref)
    scratch.note_seen(folder, [program.ref], [])
    note = scratch.read(folder)
    assert note is not None
    scratch._write_server(folder, replace(note, boot="another"))
    assert end_left_behind(tag).removed == (str(folder),)
    assert program.popen.poll() is None
    program.popen.kill()
    assert program.signals() == []


def test_the_folder_of_another_server_is_left_alone(tag: str, tmp_path: Path) -> None:
    folder = scratch.create(tag)
    assert end_left_behind(f"{tag}-other", folder=folder).removed == ()
    assert folder.exists()
