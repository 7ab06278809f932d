"""The files that are rebuilt from the log at any time."""

from __future__ import annotations

from sweeper.errors import InputError
from sweeper.records.files import write_atomically
from sweeper.records.folder import SweepFolder
from sweeper.records.log import read_events
from sweeper.records.sweep import Sweep, replay
from sweeper.report.best import best
from sweeper.report.summary import summary


def write_reports(folder: SweepFolder) -> Sweep:
    """Write ``summary.md``, and ``best.yaml`` where a trial completed.

    Raises:
        InputError: the folder has no log, or what is there is none.
    """
    sweep = replay(read_events(folder.log))
    if sweep.started is None:
        raise InputError(
            "no line of it tells of the beginning of a sweep",
            where=str(folder.log),
            advice="Give the folder of a sweep, as printed by 'python -m sweeper run'.",
        )
    write_atomically(folder.summary, summary(sweep))
    if text := best(sweep):
        write_atomically(folder.best, text)
    else:
        folder.best.unlink(missing_ok=True)
    return sweep
