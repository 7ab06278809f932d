"""Everything that a worker must know to run any trial of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.engines.sglang.launch import SGLANG
from sweeper.models.resolver import ResolvedModel
from sweeper.records.folder import SweepFolder
from sweeper.spec.schema import SpaceFile


@dataclass(frozen=True)
class Plan:
    """The same for all trials. It holds secrets, so it is never written to a file.

    Args:
        folder: where records go.
        space: the file, checked.
        device: ``cuda`` or ``cpu``.
        python: the engine's interpreter.
        model: what the servers load.
        engine_args: the file's ``engine.args`` with ``auto`` replaced by a number.
        shell: the names of the variables that the user's shell had set.
        module: what the interpreter runs to start a server.
        own_env: variables that such a server needs beside those of the space.
    """

    folder: SweepFolder
    space: SpaceFile
    device: str
    python: Path
    model: ResolvedModel
    engine_args: Mapping[str, Any]
    shell: frozenset[str]
    module: str = SGLANG
    own_env: Mapping[str, str] = field(default_factory=dict)
