"""Who uses the GPUs of this machine, and whether they are well, asked of the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml

from sweeper.machine.identity import Identity, identity_of

IDLE_BYTES = 1 << 30
"""Bytes in use on a GPU that need no explanation. Where the driver does not tell apart what
it reserves, that is in it: 0.6 GiB on an H200."""

_GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST

# Bits of NVML's reasons for low clocks. Left out are an idle GPU, clocks that
# somebody set, and the limit of the board's power, which is met under every full load.
_SLOWED_BY = {
    0x08: "hardware slowdown",
    0x20: "too hot (driver)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True)
class GpuUser:
    """A process on a GPU.

    Args:
        gpu: number of the GPU in NVML.
        pid: number of the process; None for memory in use whose process is hidden, as
            by a container, a slice of the GPU (MIG) or another user's rights.
        user: whose it is, where that can be seen.
        command: short.
        memory_bytes: on this GPU; None where the driver does not say.
        tag: of the server of ours that it belongs to; None for a foreign process.
    """

    gpu: int
    pid: int | None
    user: str | None = None
    command: str | None = None
    memory_bytes: int | None = None
    tag: str | None = None

    @property
    def ours(self) -> bool:
        """It belongs to a server that a sweep started."""
        return self.tag is not None

    def __str__(self) -> str:
        memory = "" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.1f} GiB, "
        if self.pid is None:
            return f"GPU {self.gpu}: {memory}by a process that cannot be seen from here"
        who = f"{self.user or 'unknown user'}, {self.command or 'unknown program'}"
        return f"GPU {self.gpu}: {memory}process {self.pid} ({who})"


@dataclass(frozen=True)
class GpuState:
    """One GPU now. What the driver does not tell is None.

    Args:
        gpu: its number in NVML.
        uuid: "GPU-...".
        memory_used: bytes, without what the driver reserves where it tells that apart.
        memory_total: bytes.
        users: processes on it, and memory in use that no visible process explains.
        slowed_by: what holds its clocks down now, besides the power limit.
        uncorrected_errors: of its memory (ECC), since the driver was loaded.
        needs_reset: it wants a reset: rows of its memory are to be remapped, or could not be.
        lost: it fell off the bus; nothing else can be asked.
    """

    gpu: int
    uuid: str | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    users: tuple[GpuUser, ...] = ()
    slowed_by: tuple[str, ...] = ()
    uncorrected_errors: int | None = None
    needs_reset: bool | None = None
    lost: bool = False


def gpu_states(
    gpus: Collection[str] | None = None,
    *,
    tag_of: Callable[[int], str | None] = lambda _: None,
    nvml: Any = pynvml,
    identity: Callable[[int], Identity | None] | None = None,
) -> list[GpuState]:
    """All GPUs, or those named; empty without a driver.

    Args:
        gpus: numbers or UUIDs (or their beginnings), as in CUDA_VISIBLE_DEVICES.
        tag_of: the tag that a process carries.
        nvml: the module that talks to the driver.
        identity: what is known of a process; None for one that is not there.
    """
    asked = identity or identity_of
    with _driver(nvml) as count:
        states = [_state(nvml, index, tag_of, asked) for index in range(count)]
    return [state for state in states if gpus is None or _named(state, gpus)]


def busy(
    gpus: Collection[str] | None = None,
    allowed: Collection[str] = (),
    *,
    tag_of: Callable[[int], str | None] = lambda _: None,
    nvml: Any = pynvml,
    identity: Callable[[int], Identity | None] | None = None,
) -> list[GpuUser]:
    """Who uses these GPUs though they should be free.

    Args:
        gpus: as in :func:`gpu_states`.
        allowed: tags of servers that may use them.
        tag_of: the tag that a process carries.
        nvml: the module that talks to the driver.
        identity: what is known of a process.
    """
    states = gpu_states(gpus, tag_of=tag_of, nvml=nvml, identity=identity)
    return [user for state in states for user in state.users if user.tag not in allowed]


def memory_used(gpus: Sequence[str] | None = None, *, nvml: Any = pynvml) -> tuple[int, ...]:
    """Bytes in use on each GPU, or on those named; empty when one of them does not say."""
    with _driver(nvml) as count:
        states = [_memory_state(nvml, index) for index in range(count)]
    named = [state for state in states if gpus is None or _named(state, gpus)]
    used = [state.memory_used for state in named if state.memory_used is not None]
    return tuple(used) if len(used) == len(named) else ()


def unexplained(
    gpu: int, used: int | None, users: Collection[GpuUser], idle: int = IDLE_BYTES
) -> GpuUser | None:
    """Memory in use for which no process is to be seen.

    A process whose share is not told may explain all of it.
    """
    if used is None or any(user.memory_bytes is None for user in users):
        return None
    rest = used - sum(user.memory_bytes or 0 for user in users)
    return GpuUser(gpu, pid=None, memory_bytes=rest) if rest > idle else None


def _named(state: GpuState, gpus: Collection[str]) -> bool:
    return any(
        name == str(state.gpu)
        or (name and not name.isdigit() and (state.uuid or "").startswith(name))
        for name in gpus
    )


def _state(
    nvml: Any,
    index: int,
    tag_of: Callable[[int], str | None],
    identity: Callable[[int], Identity | None],
) -> GpuState:
    memory = _memory_state(nvml, index)
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if memory.lost or handle is None:
        return memory
    users = [_user(index, pid, used, tag_of, identity) for pid, used in _processes(nvml, handle)]
    hidden = unexplained(index, memory.memory_used, users)
    reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    rows = _ask(nvml, "nvmlDeviceGetRemappedRows", handle)
    return GpuState(
        gpu=index,
        uuid=memory.uuid,
        memory_used=memory.memory_used,
        memory_total=memory.memory_total,
        users=(*users, hidden) if hidden else tuple(users),
        slowed_by=tuple(word for bit, word in _SLOWED_BY.items() if reasons & bit),
        uncorrected_errors=_uncorrected(nvml, handle),
        # Corrected rows, uncorrected rows, "waits for a reset", "could not be done".
        needs_reset=None if rows is None else bool(rows[2] or rows[3]),
    )


def _memory_state(nvml: Any, index: int) -> GpuState:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return GpuState(index, lost=_is_lost(nvml, index))
    # The second version of the answer keeps apart what the driver reserves.
    version = getattr(nvml, "nvmlMemory_v2", None)
    memory = None
    if version is not None:
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle, version)
    if memory is None:
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    uuid = _ask(nvml, "nvmlDeviceGetUUID", handle)
    return GpuState(
        gpu=index,
        uuid=uuid.decode(errors="replace") if isinstance(uuid, bytes) else uuid,
        memory_used=None if memory is None else int(memory.used),
        memory_total=None if memory is None else int(memory.total),
        lost=memory is None and _is_lost(nvml, index),
    )


def _is_lost(nvml: Any, index: int) -> bool:
    try:
        nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return getattr(error, "value", None) == _GPU_IS_LOST
    return False


def _processes(nvml: Any, handle: Any) -> Iterator[tuple[int, int | None]]:
    """Number and memory of each process; one may compute and draw, and is then told twice."""
    found: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for process in _ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            shares = (found.get(process.pid), process.usedGpuMemory)
            known = [int(share) for share in shares if share is not None]
            found[int(process.pid)] = max(known, default=None)
    yield from found.items()


def _user(
    gpu: int,
    pid: int,
    used: int | None,
    tag_of: Callable[[int], str | None],
    identity: Callable[[int], Identity | None],
) -> GpuUser:
    """The process behind a number, without one when it is none that we see.

    In a container the driver may give the numbers of the host, where another
    process, or none, has the same number.
    """
    who = identity(pid)
    if who is None or who.uses_gpu is False:
        return GpuUser(gpu, None, memory_bytes=used)
    return GpuUser(gpu, pid, who.user, who.command, used, tag_of(pid))


def _uncorrected(nvml: Any, handle: Any) -> int | None:
    kind = getattr(nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1)
    since = getattr(nvml, "NVML_VOLATILE_ECC", 0)
    count = _ask(nvml, "nvmlDeviceGetTotalEccErrors", handle, kind, since)
    return None if count is None else int(count)


def _ask(nvml: Any, question: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, question)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None  # "not supported" is an answer of many a GPU, and drivers differ


@contextmanager
def _driver(nvml: Any) -> Iterator[int]:
    """The driver for the length of a block; gives the number of GPUs, 0 without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield 0
        return
    try:
        yield int(_ask(nvml, "nvmlDeviceGetCount") or 0)
    finally:
        _ask(nvml, "nvmlShutdown")
