"""The findings as one screen of text: what is well, what is not, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sweeper.doctor.findings import Disk, Findings, Server, counted
from sweeper.machine.gpu_processes import GpuState

CLEAN = "python -m sweeper doctor --clean"
LEAST_DISK = 5 << 30
"""Bytes that a folder should have free. Logs of one night can be that large."""
LEAST_SHARED = 1 << 30
"""Bytes of shared memory that the ranks of a server should find; containers give 64 MiB."""
_MOST_USERS = 8
_MOST_PIDS = 5


@dataclass(frozen=True)
class Line:
    """One finding.

    Args:
        well: nothing need be done.
        what: was found.
        advice: what to do, where something should be done.
    """

    well: bool
    what: str
    advice: str = ""


def text(findings: Findings) -> str:
    """One line a finding, with what to do below it."""
    shown = []
    for line in lines(findings):
        shown.append(f"{'ok' if line.well else 'attention':<11}{line.what}")
        if line.advice:
            shown.append(f"{'':<11}  {line.advice}")
    return "\n".join(shown)


def lines(findings: Findings) -> list[Line]:
    """The findings in the order in which a sweep would meet them."""
    return [
        *_programs(findings),
        *_gpus(findings),
        *map(_disk, findings.disks),
        *_servers(findings),
    ]


def _programs(findings: Findings) -> Iterator[Line]:
    names = {"python": "Python", "ray": "Ray", "optuna": "Optuna", "sweeper": "sweeper"}
    found = [f"{names[n]} {v}" for n, v in findings.versions.items() if v and n in names]
    yield Line(True, ", ".join(found))
    for name in names:
        if findings.versions.get(name) is None:
            yield Line(False, f"{names[name]} is not installed", "pip install sweeper")
    sglang = findings.versions.get("sglang")
    if sglang:
        yield Line(True, f"SGLang {sglang} ({findings.interpreter})")
    else:
        yield Line(
            False,
            f"no SGLang in {findings.interpreter}",
            'pip install "sweeper[engine]", or set engine.python to the interpreter that has it',
        )


def _gpus(findings: Findings) -> Iterator[Line]:
    if not findings.gpus and not findings.states:
        yield Line(True, "no GPU: servers run on the CPU")
        return
    names = Counter(gpu.name or "unknown GPU" for gpu in findings.gpus)
    kinds = ", ".join(f"{count} x {name}" for name, count in names.items())
    driver = next((gpu.driver for gpu in findings.gpus if gpu.driver), "unknown")
    yield Line(True, f"{kinds}, driver {driver}")
    running = {server.tag for server in findings.servers if server.running}
    left = {server.tag for server in findings.leftovers}
    users = [user for state in findings.states for user in state.users]
    for user in users[:_MOST_USERS]:
        if user.tag in running:
            yield Line(True, f"{user}, of a sweep that is running")
        elif user.tag in left:
            yield Line(False, f"{user}, left by an earlier sweep", CLEAN)
        else:
            advice = "Ask its owner to free the GPU, or leave it out with CUDA_VISIBLE_DEVICES."
            yield Line(False, str(user), advice)
    if len(users) > _MOST_USERS:
        yield Line(False, f"and {len(users) - _MOST_USERS} more users of GPUs", "nvidia-smi")
    if not users:
        yield Line(True, "no process on any GPU")
    for state in findings.states:
        yield from health(state)


def health(state: GpuState) -> Iterator[Line]:
    """What is wrong with a GPU, whoever uses it."""
    name = f"GPU {state.gpu}"
    if state.lost:
        yield Line(False, f"{name} fell off the bus", "Reset it or restart the machine.")
    if state.slowed_by:
        reasons = ", ".join(state.slowed_by)
        yield Line(False, f"{name} is slowed down: {reasons}", "Look at its cooling and power.")
    if state.needs_reset:
        yield Line(False, f"{name}: bad rows of its memory wait for a reset", "Reset the GPU.")
    if state.uncorrected_errors:
        yield Line(
            False,
            f"{name}: {state.uncorrected_errors} uncorrected errors of its memory",
            "See nvidia-smi -q -d ECC; a GPU that goes on making them must be replaced.",
        )


def _disk(disk: Disk) -> Line:
    what = f"{disk.what}: {_gib(disk.free)} free of {_gib(disk.total)} ({disk.path})"
    if disk.what == "shared memory":
        if disk.total >= LEAST_SHARED and disk.free >= disk.total // 10:
            return Line(True, what)
        return Line(False, what, "Servers with several ranks need it; a container: --shm-size=16g")
    if disk.free >= LEAST_DISK:
        return Line(True, what)
    return Line(False, what, "Make room, or choose another place.")


def _servers(findings: Findings) -> Iterator[Line]:
    running = [server for server in findings.servers if server.running]
    if running or findings.port_blocks:
        servers = counted(len(running), "server", "servers")
        blocks = counted(findings.port_blocks, "block", "blocks")
        yield Line(True, f"{servers} of sweeps that are running, {blocks} of ports held")
    if not findings.leftovers:
        yield Line(True, "nothing left by earlier sweeps")
        return
    yield Line(False, f"left by earlier sweeps: {_left(findings.leftovers)}", CLEAN)


def _left(servers: Iterable[Server]) -> str:
    servers = list(servers)
    pids = [str(ref.pid) for server in servers for ref in server.processes]
    folders = [server for server in servers if server.folder is not None]
    shared = [name for server in servers for name in server.shared]
    parts = []
    if pids:
        more = ", ..." if len(pids) > _MOST_PIDS else ""
        shown = ", ".join(pids[:_MOST_PIDS]) + more
        parts.append(f"{counted(len(pids), 'process', 'processes')} ({shown})")
    if folders:
        parts.append(counted(len(folders), "folder", "folders"))
    if shared:
        parts.append(f"{counted(len(shared), 'file', 'files')} of shared memory")
    return ", ".join(parts)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
