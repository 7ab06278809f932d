"""What one emulated server was told: its flags, its environment, its fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Everything that decides how one emulated server behaves.

    Args:
        args: parsed flags by their name in the parser (``tp_size``); a missing
            one has its default.
        env: the environment of the process, NCCL variables included.
        fault: what goes wrong, by name, or "" for nothing.
        fault_at: number of the request, counted from 1, from which faults under load act.
        seed: of everything random.
        noise: relative spread of a step's time; None takes that of the profile.
        profile: a packaged profile by name, or the path of a YAML file.
        launch_command: how this server was started, as one line.
    """

    args: Mapping[str, Any]
    env: Mapping[str, str]
    fault: str
    fault_at: int
    seed: int
    noise: float | None
    profile: str
    launch_command: str
