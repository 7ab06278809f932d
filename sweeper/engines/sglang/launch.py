"""The command line and the environment of one SGLang server, as a pure function.

What the sweeper adds on its own is little, and all of it is in the record:
loopback, the port, a served model name by which the server is known again, and
on a machine without a GPU what SGLang needs to run on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.engines.sglang.cpu_platform import PLATFORM

# Proved to work with SGLang 0.5.23 on a CPU without AMX. The memory limits keep
# a small machine usable; torch_native is the only backend that runs there.
CPU_ARGS: Mapping[str, Any] = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "mem-fraction-static": 0.5,
    "max-total-tokens": 8192,
    "disable-overlap-schedule": True,
}

SGLANG = "sglang.launch_server"
EMULATED = "sweeper.engines.emulated"

TENSOR_PARALLEL = ("tensor-parallel-size", "tp-size")
"""The names of the flag that may be "auto" in a file."""


@dataclass(frozen=True)
class Launch:
    """What to start.

    Args:
        command: the interpreter and its arguments.
        env: the whole environment of the server.
        added: the part of ``env`` that is not the shell's: what a record must hold.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    added: Mapping[str, str]


def launch(
    *,
    python: Path,
    model: str,
    port: int,
    served_name: str,
    args: Mapping[str, Any],
    env: Mapping[str, str],
    inherited: Mapping[str, str],
    device: str,
    module: str = SGLANG,
) -> Launch:
    """Build the start of one server.

    Args:
        python: the interpreter that has SGLang.
        model: a directory or a hub id.
        port: on 127.0.0.1.
        served_name: unique to this server; no colon, which SGLang gives a meaning.
        args: flags by name without dashes, fixed and searched ones together.
        env: variables that the space sets.
        inherited: the environment of the user's shell.
        device: ``cuda`` or ``cpu``.
        module: what the interpreter runs; another one takes the same flags.

    Raises:
        ValueError: ``served_name`` holds a colon.
    """
    if ":" in served_name:
        raise ValueError("a served model name must not hold a colon")
    flags = {
        "model-path": model,
        "host": "127.0.0.1",
        "port": port,
        "served-model-name": served_name,
        "enable-metrics": True,
        **(CPU_ARGS if device == "cpu" else {}),
        **args,
    }
    words = [str(python), "-m", module]
    for name, value in flags.items():
        words += flag(name, value)
    # SGLang's schedulers rename themselves with setproctitle, which writes over the
    # memory that /proc shows as their environment. This variable of setproctitle
    # keeps it, so that the tag is found and what a scheduler really got can be read.
    own = {"PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}
    if device == "cpu":
        own["SGLANG_PLATFORM"] = PLATFORM
        tensor_parallel = int(args.get("tensor-parallel-size", args.get("tp-size", 1)))
        if tensor_parallel > 1:
            # SGLang wants one group of cores for each rank where ranks exceed NUMA nodes.
            own["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(tensor_parallel)))
    added = {**own, **env}
    return Launch(tuple(words), {**inherited, **added}, added)


def flag(name: str, value: Any) -> list[str]:
    """One flag as the words of a command line. ``False`` gives no words at all."""
    if value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, Mapping):
        return [f"--{name}", json.dumps(value)]
    if isinstance(value, list | tuple):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


def gpus_needed(args: Mapping[str, Any]) -> int:
    """How many GPUs a server with these flags uses on its node.

    With data-parallel attention the replicas share the tensor-parallel group.
    """

    def size(*names: str) -> int:
        return next((int(args[name]) for name in names if name in args), 1)

    ranks = size("tensor-parallel-size", "tp-size")
    ranks *= size("pipeline-parallel-size", "pp-size")
    return ranks * (1 if args.get("enable-dp-attention") else size("data-parallel-size", "dp-size"))


def without_ray(environment: Mapping[str, str], before: Collection[str]) -> dict[str, str]:
    """The environment of a Ray worker, less what Ray put there.

    Ray sets ``OMP_NUM_THREADS=1`` in its workers (seen with 2.60), which would
    slow a server on a CPU without a trace in its flags.

    Args:
        environment: the worker's.
        before: the names that the user's shell had set.
    """
    return {name: value for name, value in environment.items() if name in before}


def tensor_parallel_auto(gpus: int, heads: int | None, kv_heads: int | None) -> int:
    """The largest tensor parallel size that fits the GPUs and the model.

    Attention heads must divide by it; key-value heads must divide by it or
    divide it, since SGLang then gives several ranks a copy of the same one.
    Without knowledge of the model the largest power of two is taken.
    """
    if gpus <= 1:
        return 1
    for size in range(gpus, 1, -1):
        if heads is None:
            if size & (size - 1) == 0:
                return size
        elif heads % size == 0 and (not kv_heads or kv_heads % size == 0 or size % kv_heads == 0):
            return size
    return 1
