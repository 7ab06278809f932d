"""The results folder of a sweep: what lies where.

results/<name>-<date>-<time>/
├── space.yaml        the space as run, secrets masked
├── trials.jsonl      the log: the truth
├── summary.md        rebuilt from the log at any time
├── best.yaml         the best configuration, rebuilt from the log too
├── optuna.journal    Optuna's study (can be thrown away)
├── ray/              Ray Tune's own files (can be thrown away)
└── trials/0007/      one folder a trial, with server.log
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sweeper.errors import MachineError


@dataclass(frozen=True)
class SweepFolder:
    """Paths of one sweep."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def space(self) -> Path:
        return self.path / "space.yaml"

    @property
    def summary(self) -> Path:
        return self.path / "summary.md"

    @property
    def best(self) -> Path:
        return self.path / "best.yaml"

    @property
    def study(self) -> Path:
        return self.path / "optuna.journal"

    @property
    def stop_request(self) -> Path:
        """While this file exists, workers end what they do and start nothing."""
        return self.path / ".stop"

    def trial(self, number: int) -> Path:
        """The folder of one trial."""
        return self.path / "trials" / f"{number:04d}"


def new_folder(results: Path, name: str, now: datetime) -> SweepFolder:
    """Make a folder for a new sweep; two started in the same second get different ones.

    Raises:
        MachineError: the folder cannot be made.
    """
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        path = results / (stem + suffix)
        try:
            (path / "trials").mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise MachineError(
                f"the results folder cannot be made: {error.strerror}",
                where=str(path),
                advice="Choose another place with --results.",
            ) from None
        return SweepFolder(path.absolute())
    raise MachineError("too many sweeps started in this second", where=str(results))
