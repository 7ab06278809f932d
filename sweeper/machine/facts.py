"""The machine that a sweep ran on, for its record. Nothing heavy is imported."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from sweeper.machine.gpus import gpus

DISTRIBUTIONS = ("sweeper", "ray", "optuna")

SHELL = ("PATH", "CUDA_HOME", "HF_HOME", "HF_HUB_OFFLINE", "LD_LIBRARY_PATH", "XDG_CACHE_HOME")
"""Variables of the user's shell that decide which programs and files a server finds."""


def environment(python_versions: Mapping[str, str]) -> dict[str, Any]:
    """What another run needs to be compared with this one. What is unknown is None.

    Args:
        python_versions: versions in the engine's interpreter, which may be another
            than ours; its ``python`` is recorded as ``engine_python``.
    """
    found = gpus()
    engine = {("engine_python" if n == "python" else n): v for n, v in python_versions.items()}
    return {
        "host": socket.gethostname(),
        "user": _user(),
        "working_directory": str(Path.cwd()),
        "os": _os(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": {
            "model": _cpu_model(),
            "physical": psutil.cpu_count(logical=False),
            "logical": psutil.cpu_count(),
            # A container or a batch system may grant fewer than there are.
            "usable": len(os.sched_getaffinity(0)),
        },
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [asdict(gpu) for gpu in found],
        "driver": next((gpu.driver for gpu in found), None),
        "versions": {**engine, **_versions()},
        "shell": {name: os.environ[name] for name in SHELL if name in os.environ},
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())  # a container may know no name for it


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None  # ARM has no such line
