"""A sweep as plain lines, for output that goes to a file or a pipe."""

from __future__ import annotations

from sweeper.records import events as ev
from sweeper.records.sweep import Sweep
from sweeper.report import words


def line(sweep: Sweep, event: ev.AnyEvent) -> str | None:
    """One line for an event that its reader wants, else None.

    Args:
        sweep: the state with the event taken into account.
        event: the one that came last.
    """
    text = _text(sweep, event)
    if text is None:
        return None
    trial = getattr(event, "trial", None)
    subject = "sweep" if trial is None else _trial(sweep, trial)
    return f"{event.time.astimezone():%H:%M:%S} {subject}: {words.plain(text)}"


def _trial(sweep: Sweep, number: int) -> str:
    return f"trial {number}/{sweep.started.trials}" if sweep.started else f"trial {number}"


def _text(sweep: Sweep, event: ev.AnyEvent) -> str | None:
    text: str | None = None
    match event:
        case ev.SweepStarted():
            text = _started(event)
        case ev.TrialStarted():
            text = f"started{', the baseline' if event.baseline else ''}: {event.label}"
        case ev.ServerLaunched():
            text = f"server launched, log {event.log}"
        case ev.StageReached():
            text = event.stage
        case ev.StartProgress():
            draft = " of the draft model" if event.draft else ""
            text = f"{event.stage}{draft}, {event.done} of {event.total}"
        case ev.TrialRetried():
            text = f"{event.failure.kind}: {event.failure.what}; started again ({event.attempt})"
        case ev.ServerReady():
            text = f"ready after {words.duration(event.start_seconds)}"
        case ev.LevelMeasured():
            text = _level(event)
        case ev.ServerStopped() if event.leftovers or event.problems:
            killed = f"{event.leftovers} processes had to be killed one by one"
            parts = [*([killed] if event.leftovers else []), *event.problems]
            text = f"server stopped; {'; '.join(parts)}"
        case ev.TrialEnded():
            text = _ended(sweep, event)
        case ev.SweepEnded():
            text = _sweep_ended(sweep, event)
    return text


def _started(event: ev.SweepStarted) -> str:
    warning = f"{words.EMULATED}; " if event.emulated else ""
    version = event.engine_version or ""
    return (
        f"{warning}{event.sweep}, {event.trials} candidates and the baseline, {event.model}, "
        f"{event.engine} {version}, {event.device}"
    )


def _level(event: ev.LevelMeasured) -> str:
    speed = event.metrics.get("output_throughput")
    ttft = event.metrics.get("ttft_p50_ms")
    parts = ["no throughput measured" if speed is None else f"{words.rate(speed)} tok/s"]
    if ttft is not None:
        parts.append(f"TTFT p50 {ttft:,.0f} ms")
    if event.failed_requests:
        parts.append(f"{event.failed_requests} of {event.requests} requests failed")
    return f"C={event.concurrency}: {', '.join(parts)}"


def _ended(sweep: Sweep, event: ev.TrialEnded) -> str:
    parts: list[str] = [event.state]
    if event.score is not None:
        parts.append(f"score {event.score:.3f}")
    trial = sweep.trials.get(event.trial)
    if trial is not None and event.state == "complete":
        parts.append(f"single stream {words.single_stream(sweep, trial)}")
        parts.append(f"peak {words.peak(sweep, trial)}")
    if event.broken_constraints:
        parts.append(f"broken: {'; '.join(event.broken_constraints)}")
    if event.failure is not None:
        stage = f" at {event.failure.stage}" if event.failure.stage else ""
        parts.append(f"{event.failure.kind}{stage}: {event.failure.what}")
    return ", ".join(parts)


def _sweep_ended(sweep: Sweep, event: ev.SweepEnded) -> str:
    best = sweep.best
    winner = "no trial completed" if best is None else f"best is trial {best.number}: {best.label}"
    return f"ended ({event.reason}), {words.counts(sweep) or 'no trials'}, {winner}"
