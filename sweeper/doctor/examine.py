"""Looks at the machine. Nothing is changed, and nothing heavy is imported."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from sweeper.doctor.findings import Disk, Findings
from sweeper.doctor.leftovers import find_servers
from sweeper.machine.gpu_processes import gpu_states
from sweeper.machine.gpus import gpus
from sweeper.models.cache import cache_root
from sweeper.servers import ports, tagged
from sweeper.servers.shared_memory import FOLDER

PROGRAMS = ("sweeper", "ray", "optuna")
_PROBE = """
import importlib.metadata, json
try:
    found = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    found = None
print(json.dumps(found))
"""
_PROBE_TIMEOUT = 30.0


def examine(
    *,
    python: Path | None = None,
    results: Path = Path("results"),
    cache: Path | None = None,
    bases: Iterable[Path] = (),
    nvml: Any = pynvml,
) -> Findings:
    """Everything that a sweep depends on.

    Args:
        python: the interpreter that should have SGLang; by default our own.
        results: where sweeps are kept.
        cache: where models are kept.
        bases: where scratch folders of servers are looked for.
        nvml: the module that talks to the driver.
    """
    python = Path(sys.executable) if python is None else python
    places = {
        "results": results,
        "temporary files": Path(tempfile.gettempdir()),
        "models and caches": cache_root() if cache is None else cache,
        "shared memory": FOLDER,
    }
    return Findings(
        versions=_versions(python),
        interpreter=python,
        gpus=tuple(gpus({}, nvml)),
        states=tuple(gpu_states(tag_of=tagged.tag_of, nvml=nvml)),
        disks=tuple(disk for w, p in places.items() if (disk := room(w, p)) is not None),
        servers=tuple(find_servers(bases)),
        port_blocks=len(ports.blocks_in_use(ports.lock_folder())),
    )


def room(what: str, path: Path) -> Disk | None:
    """Room where the folder is, or would be made; None where that cannot be told."""
    for place in (path, *path.absolute().parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return Disk(what, path, usage.free, usage.total)
    return None


def _versions(python: Path) -> Mapping[str, str | None]:
    own = {name: _version(name) for name in PROGRAMS}
    return {"python": platform.python_version(), **own, "sglang": sglang_version(python)}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def sglang_version(python: Path) -> str | None:
    """Of the SGLang that an interpreter has, without importing it; None where it has none."""
    if python.absolute() == Path(sys.executable).absolute():
        return _version("sglang")
    try:
        answer = subprocess.run(
            [str(python), "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT,
            check=True,
        )
        found = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, str) else None
