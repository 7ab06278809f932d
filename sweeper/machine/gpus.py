"""The GPUs of this machine, asked of the driver through NVML."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True)
class Gpu:
    """One GPU. What the driver does not tell is None, never zero.

    Args:
        index: its number in NVML, which counts along the PCI bus.
        name: "NVIDIA H200".
        uuid: "GPU-...", the same after a restart.
        memory_bytes: all of its memory.
        compute_capability: "9.0".
        driver: version of the driver.
    """

    index: int
    name: str | None
    uuid: str | None
    memory_bytes: int | None
    compute_capability: str | None
    driver: str | None


def gpus(environment: Mapping[str, str] | None = None, nvml: Any = pynvml) -> list[Gpu]:
    """The GPUs that CUDA programs of this environment see; empty without a driver.

    ``CUDA_VISIBLE_DEVICES`` is honoured as CUDA does it: numbers or UUIDs (or
    the beginning of one), in that order, up to the first that names no GPU. A
    number is taken along the PCI bus, which is CUDA's own order where all GPUs
    are of one kind. Slices of a GPU (MIG) are not looked into.

    Args:
        environment: where the variable is read; by default our own.
        nvml: the module that talks to the driver.
    """
    environment = os.environ if environment is None else environment
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        count = _ask(nvml, nvml.nvmlDeviceGetCount) or 0
        found = [gpu for index in range(count) if (gpu := _gpu(nvml, index)) is not None]
    finally:
        _ask(nvml, nvml.nvmlShutdown)
    return _visible(found, environment.get("CUDA_VISIBLE_DEVICES"))


def _gpu(nvml: Any, index: int) -> Gpu | None:
    handle = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return Gpu(
        index=index,
        name=_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        memory_bytes=None if memory is None else int(memory.total),
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        driver=_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)),
    )


def _ask(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None  # "not supported" is an answer of many a GPU


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _visible(found: list[Gpu], setting: str | None) -> list[Gpu]:
    if setting is None:
        return found
    chosen: list[Gpu] = []
    for word in setting.split(","):
        name = word.strip()
        if name.isdigit():
            hits = [gpu for gpu in found if gpu.index == int(name)]
        else:
            hits = [gpu for gpu in found if name and gpu.uuid and gpu.uuid.startswith(name)]
        if len(hits) != 1:
            break
        if hits[0] not in chosen:
            chosen.append(hits[0])
    return chosen
