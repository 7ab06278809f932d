"""What a running server really does, asked of the server and of its processes.

A flag that was given is a wish. SGLang adjusts settings to each other, to the
model and to the GPU, mostly with one line in the log or none. ``/server_info``
shows what came out, and the environment of the scheduler processes shows which
variables NCCL and the kernels saw: SGLang sets some of them itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sweeper.records.masking import mask_mapping
from sweeper.servers import tagged

TIMEOUT = 30.0

PREFIXES = ("NCCL_", "SGLANG_", "CUDA_", "OMP_", "TORCH_", "FLASHINFER_", "TRITON_", "GLOO_")
"""Beginnings of the names of variables that can change how fast a server is."""

# Sections whose inner values are settings or sizes; all others hold bookkeeping.
NESTED = ("cuda_graph_config", "memory_usage")

# Measured while requests ran, different in every server for no reason of speed, or read apart.
NOISE = frozenset(
    {
        "avg_spec_accept_length",
        "forward_pass_metrics_worker_id",
        "host",
        "internal_states",
        "last_gen_throughput",
        "launch_command",
        "nccl_port",
        "port",
        "served_model_name",
        "startup_time",
        "status",
    }
)

# New in every start: it would make all servers look different.
_UNIQUE = frozenset({"SGLANG_RUN_ID"})

# SGLang 0.5.23 has some 500 settings. The bounds are for a server that goes mad.
_MOST_SETTINGS = 1000
_LONGEST_TEXT = 500
_LONGEST_LIST = 16
_DEEPEST = 4

_DIFFER = " | "
_UNSET = "(unset)"


@dataclass(frozen=True)
class ReadBackFacts:
    """What a server runs with. Secret values are masked.

    Args:
        effective: settings by name, inner ones with dots. A setting that
            SGLang leaves open (null) is absent.
        scheduler_env: variables of the scheduler processes.
    """

    effective: dict[str, Any]
    scheduler_env: dict[str, str]


async def read_back(url: str, tag: str, names: Collection[str] = ()) -> ReadBackFacts:
    """Ask a ready server, and look at its schedulers.

    Args:
        url: where it answers, without a path.
        tag: the server's tag (:mod:`sweeper.servers.tagged`).
        names: variables to read beside those that start with :data:`PREFIXES`.

    Raises:
        httpx.HTTPError: no answer, or one that is an error.
        ValueError: an answer that is no JSON object.
    """
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, trust_env=False) as client:
        answer = await client.get("/server_info")
        if answer.status_code == httpx.codes.NOT_FOUND:
            answer = await client.get("/get_server_info")  # its name in 0.5.5
    answer.raise_for_status()
    info = answer.json()
    if not isinstance(info, dict):
        raise ValueError(f"a JSON object was expected, found {type(info).__name__}")
    return ReadBackFacts(effective(info), scheduler_env(tag, names))


def effective(info: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in an answer of ``/server_info``.

    The top level is the launcher's view and ``internal_states`` the schedulers'
    (one per data-parallel replica). Where they differ, the scheduler is right:
    it is the one that runs the model.
    """
    settings = dict(_scalars(info))
    states = [state for state in info.get("internal_states") or () if isinstance(state, Mapping)]
    flat = [dict(_scalars(state)) for state in states]
    for name in dict.fromkeys(name for state in flat for name in state):
        values = [state[name] for state in flat if name in state]
        same = all(value == values[0] for value in values)
        settings[name] = values[0] if same else _DIFFER.join(map(str, values))
    bounded = dict(sorted(settings.items())[:_MOST_SETTINGS])
    # A number is no secret here: names of thresholds and counts hold the word "token".
    texts = mask_mapping({n: v for n, v in bounded.items() if isinstance(v, str)})
    return {name: _short(texts.get(name, value)) for name, value in bounded.items()}


def _scalars(section: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[Any]:
    for name, value in section.items():
        if name.startswith("_") or (not prefix and name in NOISE):
            continue
        if isinstance(value, bool | int | float | str):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping) and (prefix or name in NESTED) and depth < _DEEPEST:
            yield from _scalars(value, f"{prefix}{name}.", depth + 1)
        elif isinstance(value, list) and 0 < len(value) <= _LONGEST_LIST and _plain(value):
            yield f"{prefix}{name}", json.dumps(value)


def _plain(values: Sequence[Any]) -> bool:
    return all(isinstance(value, bool | int | float | str) for value in values)


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[: _LONGEST_TEXT - 3] + "..."
    return value


def scheduler_env(tag: str, names: Collection[str] = ()) -> dict[str, str]:
    """Variables of the server's scheduler processes, as they were at their start.

    SGLang's launcher changes its environment before it starts them, so these
    are not the variables that the launcher was given. Where ranks differ, the
    values are joined in the order of the processes' titles.
    """
    ranks = sorted(
        (title, environment)
        for process in tagged.find(tag)
        if (title := _read(process.pid, "cmdline")).find(b"sglang::scheduler") >= 0
        and (environment := _read(process.pid, "environ"))
    )
    return joined([variables(environment, names) for _, environment in ranks])


def variables(environ: bytes, names: Collection[str] = ()) -> dict[str, str]:
    """The variables of interest in the text of ``/proc/PID/environ``."""
    pairs = (item.decode(errors="replace").partition("=") for item in environ.split(b"\0") if item)
    return {
        name: value
        for name, equals, value in pairs
        if equals and (name in names or (name.startswith(PREFIXES) and name not in _UNIQUE))
    }


def joined(ranks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """One mapping for all ranks, masked; values that differ stand side by side."""
    result = {}
    for name in sorted({name for rank in ranks for name in rank}):
        values = dict.fromkeys(rank.get(name, _UNSET) for rank in ranks)
        result[name] = _DIFFER.join(values)
    return {name: _short(value) for name, value in mask_mapping(result).items()}


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it ended, or belongs to someone else
