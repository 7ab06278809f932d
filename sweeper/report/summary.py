"""The summary of a sweep, as Markdown: verdict, table, what failed, how it was measured."""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.records.sweep import Sweep, Trial
from sweeper.report import words
from sweeper.report.conditions import environment, how_measured, time_spent
from sweeper.report.markdown import block, code, table
from sweeper.report.markdown import words as escaped
from sweeper.report.verdict import verdict

_TAIL = 8
# After the complete ones, by how much is known of them.
_ORDER = ("complete", "running", "infeasible", "pruned", "failed", "interrupted")


def summary(sweep: Sweep) -> str:
    """The whole text. It can be made at any time, of a sweep that runs as well."""
    return "\n\n".join([*_first(sweep), *_rest(sweep)]) + "\n"


def short(sweep: Sweep) -> str:
    """The verdict and the table: what fits on the screen at the end of a sweep."""
    failed = [_failures(sweep)] if sweep.best is None else []
    return "\n\n".join([*_first(sweep), *filter(None, failed)]) + "\n"


def _first(sweep: Sweep) -> Iterator[str]:
    yield f"# Sweep {escaped(sweep.started.sweep) if sweep.started else 'without a beginning'}"
    if sweep.started and sweep.started.emulated:
        yield f"> **{words.EMULATED}.** Do not quote them."
    yield verdict(sweep)
    if sweep.trials:
        yield _table(sweep)


def _rest(sweep: Sweep) -> Iterator[str]:
    sections = {
        "Failures": _failures(sweep),
        "Started again": _retried(sweep),
        "Broken constraints": _broken(sweep),
        "Failed requests": _failed_requests(sweep),
        "How it was measured": how_measured(sweep),
        "Environment": environment(sweep),
        "Counts and time spent": time_spent(sweep),
    }
    for title, text in sections.items():
        if text:
            yield f"## {title}"
            yield text


def _table(sweep: Sweep) -> str:
    speculative = any(trial.accept_length is not None for trial in sweep.trials.values())
    head = ["configuration", "single stream, tok/s", "peak, tok/s"]
    return table(
        [*head, "acceptance"] if speculative else head,
        [
            [
                _configuration(sweep, trial),
                words.single_stream(sweep, trial),
                words.peak(sweep, trial),
                *([_acceptance(trial)] if speculative else []),
            ]
            for trial in sorted(sweep.trials.values(), key=_rank)
        ],
    )


def _rank(trial: Trial) -> tuple[bool, int, float, int]:
    score = -trial.score if trial.score is not None else 0.0
    return not trial.baseline, _ORDER.index(trial.state), score, trial.number


def _configuration(sweep: Sweep, trial: Trial) -> str:
    name = f"{trial.number}: {code(trial.label)}"
    if trial.baseline:
        name = f"{trial.number}, baseline: {code(trial.label)}"
    if trial is sweep.best:
        name = f"**best** {name}"
    if trial.state == "complete":
        return name
    why = f": {escaped(trial.failure.kind)}" if trial.failure else ""
    return f"{name} ({trial.state}{why})"


def _acceptance(trial: Trial) -> str:
    return words.MISSING if trial.accept_length is None else f"{trial.accept_length:.2f}"


def _failures(sweep: Sweep) -> str:
    parts = []
    for trial in sweep.trials.values():
        if trial.failure is None:
            continue
        failure = trial.failure
        stage = f", at the stage {escaped(failure.stage)}" if failure.stage else ""
        blame = "" if failure.blame == "unknown" else f", blamed on the {failure.blame}"
        parts.append(
            f"**Trial {trial.number}**, {code(trial.label)}: {escaped(failure.kind)}{stage}{blame}. "
            f"{escaped(failure.what)}"
        )
        if failure.advice:
            parts.append(failure.advice)  # of our own table, with names set as code
        # What decided is better than what came last, which is mostly an echo.
        if lines := failure.evidence or failure.tail[-_TAIL:]:
            parts.append(block(lines))
    return "\n\n".join(parts)


def _retried(sweep: Sweep) -> str:
    """What failed and went well, or not, when it was tried again."""
    return "\n".join(
        f"- Trial {trial.number}, {code(trial.label)}: {escaped(failure.kind)}. {escaped(failure.what)}"
        for trial in sweep.trials.values()
        for failure in trial.retries
    )


def _broken(sweep: Sweep) -> str:
    return "\n".join(
        f"- Trial {trial.number}, {code(trial.label)}: {escaped('; '.join(trial.broken_constraints))}"
        for trial in sweep.trials.values()
        if trial.broken_constraints
    )


def _failed_requests(sweep: Sweep) -> str:
    found = [(t, words.failed_requests(t)) for t in sweep.trials.values()]
    lines = [
        f"- Trial {trial.number}, {code(trial.label)}: {', '.join(levels)}"
        for trial, levels in found
        if levels
    ]
    if not lines:
        return ""
    return "\n".join(["The numbers are of the requests that were answered.", "", *lines])
