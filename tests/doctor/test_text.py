"""One screen: what is well, what is not, and what to do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.doctor import Findings, examine, text
from sweeper.doctor.examine import room, sglang_version
from sweeper.doctor.findings import Disk, Server
from sweeper.doctor.text import lines
from sweeper.machine.gpu_processes import GpuState, GpuUser
from sweeper.machine.gpus import Gpu
from sweeper.servers.tagged import ProcessRef

GIB = 1 << 30
VERSIONS = {
    "python": "3.11.9",
    "sweeper": "0.1.0",
    "ray": "2.60.0",
    "optuna": "5.0.0",
    "sglang": "0.5.23",
}
WELL = Findings(
    VERSIONS,
    Path("/env/bin/python"),
    gpus=tuple(Gpu(n, "NVIDIA H200", f"GPU-{n}", 140 * GIB, "9.0", "580.1") for n in range(8)),
    states=tuple(GpuState(n, f"GPU-{n}", 0, 140 * GIB) for n in range(8)),
    disks=(Disk("results", Path("results"), 90 * GIB, 100 * GIB),),
)
LEFT = Server("old", (ProcessRef(5, 1),), Path("/tmp/sweeper-1"), ("psm_1",))
RUNNING = Server("new", (ProcessRef(6, 1),), running=True)


def attention(findings: Findings) -> list[str]:
    return [f"{line.what} -> {line.advice}" for line in lines(findings) if not line.well]


def test_all_is_well() -> None:
    assert text(WELL).splitlines() == [
        "ok         Python 3.11.9, sweeper 0.1.0, Ray 2.60.0, Optuna 5.0.0",
        "ok         SGLang 0.5.23 (/env/bin/python)",
        "ok         8 x NVIDIA H200, driver 580.1",
        "ok         no process on any GPU",
        "ok         results: 90.0 GiB free of 100.0 GiB (results)",
        "ok         nothing left by earlier sweeps",
    ]


def test_what_to_do_stands_below() -> None:
    first, second = text(replace(WELL, servers=(LEFT,))).splitlines()[-2:]
    assert first == (
        "attention  left by earlier sweeps: 1 process (5), 1 folder, 1 file of shared memory"
    )
    assert second == "             python -m sweeper doctor --clean"


def gpu(**fields: object) -> Findings:
    return replace(WELL, states=(GpuState(3, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("findings", "seen"),
    [
        (
            replace(WELL, versions={**VERSIONS, "sglang": None}),
            "no SGLang in /env/bin/python -> pip",
        ),
        (replace(WELL, versions={**VERSIONS, "ray": None}), "Ray is not installed"),
        (
            gpu(users=(GpuUser(3, 9, "bob", "train.py", GIB),)),
            "GPU 3: 1.0 GiB, process 9 (bob, train.py) -> Ask",
        ),
        (gpu(users=(GpuUser(3, None, memory_bytes=GIB),)), "cannot be seen from here -> Ask"),
        (gpu(lost=True), "GPU 3 fell off the bus"),
        (gpu(slowed_by=("power brake",)), "GPU 3 is slowed down: power brake"),
        (gpu(needs_reset=True), "wait for a reset"),
        (gpu(uncorrected_errors=2), "GPU 3: 2 uncorrected errors"),
        (replace(WELL, disks=(Disk("results", Path("r"), GIB, 9 * GIB),)), "1.0 GiB free"),
        (
            replace(WELL, disks=(Disk("shared memory", Path("s"), 64 << 20, 64 << 20),)),
            "--shm-size",
        ),
    ],
)
def test_what_needs_attention(findings: Findings, seen: str) -> None:
    (found,) = attention(findings)
    assert seen in found


def test_servers_of_ours_on_a_gpu() -> None:
    users = (GpuUser(3, 6, "me", "python", GIB, "new"), GpuUser(3, 5, "me", "python", GIB, "old"))
    findings = replace(gpu(users=users), servers=(RUNNING, LEFT), port_blocks=1)
    assert "1 server of sweeps that are running, 1 block of ports held" in text(findings)
    left, _ = attention(findings)
    assert left.endswith("left by an earlier sweep -> python -m sweeper doctor --clean")


def test_it_stays_one_screen() -> None:
    users = tuple(GpuUser(n % 8, n, "bob", "train.py", GIB) for n in range(64))
    assert len(text(gpu(users=users)).splitlines()) <= 30


def test_no_gpu() -> None:
    assert "no GPU: servers run on the CPU" in text(replace(WELL, gpus=(), states=()))


def test_this_machine(tmp_path: Path) -> None:
    findings = examine(results=tmp_path / "none" / "yet", cache=tmp_path, bases=[tmp_path])
    assert findings.versions["sweeper"]
    assert [disk.what for disk in findings.disks][:2] == ["results", "temporary files"]
    assert len(text(findings).splitlines()) <= 40


def test_sglang_of_another_interpreter(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert sglang_version(link) is None or sglang_version(link)
    assert sglang_version(tmp_path / "none") is None
    assert sglang_version(Path("/bin/false")) is None


def test_room(tmp_path: Path) -> None:
    disk = room("results", tmp_path / "a" / "b")
    assert disk is not None
    assert 0 < disk.free <= disk.total
