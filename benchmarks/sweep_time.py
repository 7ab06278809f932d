"""Where the time of a sweep went, from its record: ``python benchmarks/sweep_time.py SWEEP``.

Prints the time to the first measured trial, the whole time, and for each trial what
the sweeper itself added: everything that is neither engine start nor measuring nor
engine stop. The server of a pruned trial is stopped when the next one begins, so that
stop is taken off the next trial's own time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sweeper.records.events import ServerStopped
from sweeper.records.log import read_events
from sweeper.records.sweep import Trial, replay


def own_seconds(trial: Trial, stops: list[ServerStopped]) -> float | None:
    """What the sweeper added to a trial that went through; None for any other."""
    if trial.ended is None or trial.start_seconds is None or trial.stop_seconds is None:
        return None
    if trial.state not in ("complete", "infeasible"):
        return None
    measuring = sum(level.seconds + level.warmup_seconds for level in trial.levels.values())
    whole = (trial.ended - trial.started).total_seconds()
    others = sum(
        stop.stop_seconds
        for stop in stops
        if stop.trial != trial.number and trial.started < stop.time < trial.ended
    )
    return whole - trial.start_seconds - measuring - trial.stop_seconds - others


def main() -> None:
    """Print the table."""
    events = list(read_events(Path(sys.argv[1]) / "trials.jsonl"))
    sweep = replay(events)
    stops = [event for event in events if isinstance(event, ServerStopped)]
    assert sweep.started is not None
    print(f"{'trial':>5} {'state':<11} {'start':>7} {'measure':>8} {'stop':>6} {'own':>6}")
    own = []
    for trial in sweep.trials.values():
        seconds = own_seconds(trial, stops)
        measuring = sum(level.seconds + level.warmup_seconds for level in trial.levels.values())
        cells = [trial.start_seconds, measuring, trial.stop_seconds, seconds]
        text = " ".join(
            f"{'-' if cell is None else f'{cell:.2f}':>{width}}"
            for cell, width in zip(cells, (7, 8, 6, 6), strict=True)
        )
        print(f"{trial.number:>5} {trial.state:<11} {text}")
        if seconds is not None:
            own.append(seconds)
    begin = sweep.started.time
    if first := next((t.ended for t in sweep.trials.values() if t.state == "complete"), None):
        print(f"first measured trial after {(first - begin).total_seconds():.1f} s")
    if sweep.ended:
        print(f"whole sweep {(sweep.ended.time - begin).total_seconds() / 60:.1f} min")
    if own:
        print(
            f"the sweeper's own time a trial: mean {sum(own) / len(own):.2f} s, max {max(own):.2f} s"
        )


if __name__ == "__main__":
    main()
