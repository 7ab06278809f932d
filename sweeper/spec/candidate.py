"""A candidate: one point of the space, as the switches that it sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.spec.values import UNSET, as_text

Value = bool | int | float | str


@dataclass(frozen=True)
class Candidate:
    """Values by parameter name (``env.NCCL_PROTO``, ``args.attention-backend``).

    Parameters that do not exist for this candidate (their ``when`` does not
    hold) are absent; those left alone have the value ``"unset"``.
    """

    values: Mapping[str, Value]

    def env(self) -> dict[str, str]:
        """The environment variables that it sets, as text."""
        return {name: as_text(value) for name, value in self._set("env.").items()}

    def args(self) -> dict[str, Value]:
        """The flags that it gives. ``False`` is a flag not given, so it is absent."""
        return {name: value for name, value in self._set("args.").items() if value is not False}

    def key(self) -> str:
        """The same text for candidates that start the same server."""
        return json.dumps([self.env(), self.args()], sort_keys=True)

    def label(self) -> str:
        """What it changes, for people: ``NCCL_PROTO=LL disable-custom-all-reduce``."""
        parts = [f"{name}={value}" for name, value in self.env().items()]
        parts += [
            name if value is True else f"{name}={as_text(value)}"
            for name, value in self.args().items()
        ]
        return " ".join(parts) or "engine defaults"

    def _set(self, prefix: str) -> dict[str, Value]:
        return {
            name.removeprefix(prefix): value
            for name, value in self.values.items()
            if name.startswith(prefix) and value != UNSET
        }
