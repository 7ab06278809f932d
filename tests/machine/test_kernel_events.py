"""Kills for lack of memory and lost GPUs are told; what cannot be read is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.machine.kernel_events import (
    KernelMoment,
    kernel_events_since,
    kernel_moment,
    read_kernel_log,
    read_text,
)

XID = "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
KILLED = "Out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB, anon-rss:1kB"
GROUP = "/sys/fs/cgroup/jobs/a/memory.events"
NO_KILL = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"
ONE_KILL = NO_KILL.replace("oom_kill 0", "oom_kill 1", 1)


def kmsg(*records: tuple[int, str]) -> list[str]:
    return [f"6,{number},{at},-;{text}" for number, (at, text) in enumerate(records)]


def log(lines: Sequence[str]) -> Callable[[], Sequence[str]]:
    return lambda: lines


def closed() -> Sequence[str]:
    raise PermissionError("Operation not permitted")


def files(contents: Mapping[str, str]) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        try:
            return contents[str(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    return read


def group(events: str, vmstat: str = "oom_kill 0\n") -> Callable[[Path], str]:
    return files({"/proc/self/cgroup": "0::/jobs/a\n", GROUP: events, "/proc/vmstat": vmstat})


def test_what_the_log_tells_since_then() -> None:
    before = kmsg((5, "usb 1-1: new device"), (7, XID.replace("79", "13")))
    after = [
        *before,
        *kmsg((8, XID), (9, "eth0: link up"), (9, KILLED)),
        " SUBSYSTEM=pci",  # belongs to the record before, and is none
    ]
    moment = kernel_moment(log(before), group(NO_KILL))
    events = kernel_events_since(moment, log(after), group(NO_KILL))
    assert events.records == (XID, KILLED)
    assert events.unknown == ()


def test_output_of_dmesg() -> None:
    before = ["[    1.000000] Linux version 6", f"[   90.500000] {XID}"]
    moment = kernel_moment(log(before), group(NO_KILL))
    after = [*before, f"kern  :err   : [  191.25] {KILLED}", "no record"]
    assert kernel_events_since(moment, log(after), group(NO_KILL)).records == (KILLED,)


def test_an_empty_log_was_read() -> None:
    moment = kernel_moment(log([]), group(NO_KILL))
    events = kernel_events_since(moment, log(kmsg((0, XID))), group(NO_KILL))
    assert events.records == (XID,)
    assert not events.unknown


def test_kills_of_our_group() -> None:
    moment = kernel_moment(closed, group(NO_KILL))
    events = kernel_events_since(moment, closed, group(ONE_KILL))
    (record,) = events.records
    assert record.startswith("oom_kill: processes of this control group")
    assert events.unknown == ("the log of the kernel",)


def test_kills_elsewhere_are_not_ours() -> None:
    moment = kernel_moment(log([]), group(ONE_KILL, "oom_kill 3\n"))
    events = kernel_events_since(moment, log([]), group(ONE_KILL, "oom_kill 9\n"))
    assert events.records == ()
    assert events.unknown == ()


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"/proc/self/cgroup": "9:memory:/a\n0::/\n"},  # version 1: the counter is elsewhere
        {"/proc/self/cgroup": "4:memory:/a\n"},
        {"/proc/self/cgroup": "0::/jobs/a\n", GROUP: "low 0\n"},
    ],
)
def test_the_whole_machine_where_the_group_tells_nothing(own: dict[str, str]) -> None:
    moment = kernel_moment(log([]), files({**own, "/proc/vmstat": "nr_free 1\noom_kill 3\n"}))
    events = kernel_events_since(moment, log([]), files({**own, "/proc/vmstat": "oom_kill 5\n"}))
    (record,) = events.records
    assert record == "oom_kill: processes of this machine killed for lack of memory: 2"
    assert events.unknown == ()


def test_nothing_readable_is_unknown_and_not_nothing() -> None:
    moment = kernel_moment(closed, files({}))
    assert moment == KernelMoment(None, None, None)
    events = kernel_events_since(moment, log(kmsg((1, XID))), group(ONE_KILL))
    assert events.records == ()
    assert events.unknown == (
        "the log of the kernel",
        "the count of processes killed for lack of memory",
    )
    readable = kernel_moment(log([]), group(NO_KILL))
    assert kernel_events_since(readable, closed, files({})).unknown == events.unknown


def test_a_counter_that_went_back_is_unknown() -> None:
    moment = KernelMoment(0.0, 5, 5)
    events = kernel_events_since(moment, log([]), group(ONE_KILL))
    assert events.records == ()
    assert events.unknown == ("the count of processes killed for lack of memory",)


@given(lines=st.lists(st.text()), text=st.text(), at=st.floats() | st.none())
def test_whatever_is_in_them(lines: list[str], text: str, at: float | None) -> None:
    kernel_events_since(KernelMoment(at, 0, 0), log(lines), lambda path: text)


def test_this_machine() -> None:
    """Readable or not, asking twice tells the same, or more."""
    moment = kernel_moment()
    events = kernel_events_since(moment)
    assert ("the log of the kernel" in events.unknown) == (moment.log_seconds is None)
    try:
        assert all(isinstance(line, str) for line in read_kernel_log())
    except OSError:
        assert moment.log_seconds is None
    assert read_text(Path("/proc/self/cgroup"))
