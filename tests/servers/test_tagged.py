"""Which processes belong to a server: pure decisions, and the real process table."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from sweeper.servers import tagged
from sweeper.servers.family import Family, session_of
from sweeper.servers.tagged import Entry, ProcessRef, relatives


def table(*rows: tuple[int, int, int] | tuple[int, int, int, bool]) -> dict[int, Entry]:
    """Rows of number, parent, session and whether it is a zombie; all started at 100 + number."""
    return {
        pid: Entry(ref(pid), parent, session, *zombie) for pid, parent, session, *zombie in rows
    }


def ref(pid: int) -> ProcessRef:
    return ProcessRef(pid, 100 + pid)


def nobody(pid: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("processes", "known", "session", "tagged_pids", "found"),
    [
        (table((1, 0, 1), (5, 1, 5)), [], None, [], []),
        (table((5, 1, 5), (6, 1, 5)), [], 5, [], [5, 6]),
        (table((5, 1, 5), (6, 1, 6)), [], None, [6], [6]),
        # A grandchild in another session, without the tag, below one that is found.
        (table((5, 1, 5), (6, 5, 6), (7, 6, 7)), [], 5, [], [5, 6, 7]),
        # Its parent is gone: only who saw it knows it.
        (table((7, 1, 7), (8, 7, 7)), [ref(7)], None, [], [7, 8]),
        # The number was given to another process.
        (table((7, 1, 7)), [ProcessRef(7, 9)], None, [], []),
        # Zombies hold nothing.
        (table((5, 1, 5, True), (6, 1, 5)), [ref(5)], 5, [], [6]),
    ],
)
def test_relatives(
    processes: dict[int, Entry],
    known: list[ProcessRef],
    session: int | None,
    tagged_pids: list[int],
    found: list[int],
) -> None:
    members = relatives(processes, known, session, tagged_pids.__contains__)
    assert sorted(member.pid for member in members) == found


@pytest.mark.parametrize(
    ("processes", "known", "session"),
    [
        (table((5, 1, 5)), [], 5),
        (table((5, 1, 5, True)), [], 5),  # nobody else gets the number of a zombie
        (table((6, 1, 5)), [ref(6)], 5),
        (table((6, 1, 5)), [], None),  # it may be a later session with the same number
        (table((6, 1, 5)), [ProcessRef(6, 9)], None),
        ({5: Entry(ProcessRef(5, 9), 1, 5), **table((6, 1, 5))}, [], None),
        ({}, [], None),
    ],
)
def test_whether_a_session_is_still_ours(
    processes: dict[int, Entry], known: list[ProcessRef], session: int | None
) -> None:
    assert session_of(processes, ref(5), known) == session


def test_no_leader_no_session() -> None:
    assert session_of(table((5, 1, 5)), None, []) is None


def test_we_are_never_a_part(tag: str) -> None:
    assert tagged.find(tag, os.getsid(0)) == [
        found for found in tagged.find(tag, os.getsid(0)) if found.pid != os.getpid()
    ]


def test_a_family_forgets_the_dead(tag: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        entry = tagged.look_at(process.pid)
        assert entry is not None
        family = Family(tag, entry.ref)
        assert [member.pid for member in family.living()] == [process.pid]
        assert family.known_alive()
        process.kill()
        process.wait()
        assert family.living() == []
        assert not family.known_alive()


def test_a_reused_number_is_not_signalled() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        ProcessRef(process.pid, started=1).signal(signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)  # a signal that was sent ends it well within this
        process.kill()
    ProcessRef(process.pid, started=1).signal(signal.SIGKILL)  # gone: nothing happens


def test_a_kernel_without_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        entry = tagged.look_at(process.pid)
        assert entry is not None
        ProcessRef(process.pid, started=1).signal(signal.SIGKILL)
        entry.ref.signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_a_name_with_spaces_and_brackets() -> None:
    code = "import setproctitle, sys; setproctitle.setthreadtitle(') R 1 (x'); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        entry = tagged.look_at(process.pid)
        assert entry is not None
        assert entry.parent == os.getpid()
        assert entry.session == os.getsid(0)
        process.kill()


def test_the_tag_of_a_process() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], env={tagged.TAG: "a b"}) as process:
        assert tagged.wait_until(lambda: tagged.tag_of(process.pid) == "a b", 10)
        assert tagged.has_tag(process.pid, "a b")
        assert not tagged.has_tag(process.pid, "a")
        process.kill()
    assert tagged.tag_of(process.pid) is None


def test_waiting() -> None:
    answers = iter([False, False, True])
    assert tagged.wait_until(lambda: next(answers), 5, every=0.0)
    assert not tagged.wait_until(lambda: False, 0.0)
