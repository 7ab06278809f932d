"""What was found, as plain data. What could not be found out is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.machine.gpu_processes import GpuState
from sweeper.machine.gpus import Gpu
from sweeper.servers.tagged import ProcessRef


@dataclass(frozen=True)
class Disk:
    """Room in a folder.

    Args:
        what: is kept there.
        path: of the folder, which need not exist yet.
        free: bytes.
        total: bytes.
    """

    what: str
    path: Path
    free: int
    total: int


@dataclass(frozen=True)
class Server:
    """A server that a sweep of this user started, or what is left of it.

    Args:
        tag: that its processes carry; empty for a folder whose note cannot be read.
        processes: that are alive.
        folder: its scratch folder.
        shared: names of shared memory that it used and that is still there.
        owner: who started it; None when nothing says who.
        running: its owner is there, or its watcher, which is about to end it.
    """

    tag: str
    processes: tuple[ProcessRef, ...] = ()
    folder: Path | None = None
    shared: tuple[str, ...] = ()
    owner: ProcessRef | None = None
    running: bool = False


@dataclass(frozen=True)
class Findings:
    """Everything that the doctor looks at.

    Args:
        versions: of the programs that a sweep needs; None where one is missing.
        interpreter: the Python that SGLang was looked for in.
        gpus: the GPUs of this machine, without regard to CUDA_VISIBLE_DEVICES.
        states: their users and their health.
        disks: folders that a sweep writes to.
        servers: running ones and leftovers.
        port_blocks: blocks of ports that are held now.
    """

    versions: Mapping[str, str | None]
    interpreter: Path
    gpus: tuple[Gpu, ...] = ()
    states: tuple[GpuState, ...] = ()
    disks: tuple[Disk, ...] = ()
    servers: tuple[Server, ...] = field(default=())
    port_blocks: int = 0

    @property
    def leftovers(self) -> tuple[Server, ...]:
        """What :func:`sweeper.doctor.clean` would end and remove."""
        return tuple(server for server in self.servers if not server.running)


def counted(number: int, one: str, many: str) -> str:
    """A number with its word: "1 process", "2 processes"."""
    return f"{number} {one if number == 1 else many}"
