"""Small spaces for the search."""

from __future__ import annotations

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
