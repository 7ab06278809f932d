"""Small spaces for the search."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sweeper.spec.schema import SpaceFile


def make_space(**fields: Any) -> SpaceFile:
    """A space of two flags and one variable, with anything in it replaced."""
    data: dict[str, Any] = {
        "name": "t",
        "model": "embedded-tiny",
        "space": {
            "args": {"disable-custom-all-reduce": [False, True]},
            "env": {
                "NCCL_PROTO": {
                    "choices": ["unset", "LL", "Simple"],
                    "when": {"args.disable-custom-all-reduce": True},
                }
            },
        },
        "workload": {"concurrency": [1, 4]},
        "search": {"trials": 3},
    }
    return SpaceFile.model_validate(data | fields)


def fake_python(folder: Path) -> Path:
    """An interpreter in which ``-m sglang.launch_server`` is ``fake_engine.py``."""
    engine = Path(__file__).with_name("fake_engine.py")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {engine} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return python
