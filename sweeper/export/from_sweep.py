"""From the record of a trial to the service that runs its server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.errors import InputError
from sweeper.export.service import Service, option
from sweeper.records.events import ServerLaunched, SweepStarted
from sweeper.records.sweep import Sweep, Trial

# What a server needs from the login shell of whoever ran the sweep, and nothing more:
# compilers, models, compiled kernels. A service gets none of it by itself.
_FROM_SHELL = (
    "PATH",
    "CUDA_HOME",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "LD_LIBRARY_PATH",
    "XDG_CACHE_HOME",
)

# The first was free in one trial and may be taken now; the second marks the
# sweeper's own server. Each has one value.
_DROPPED = ("--port", "--nccl-port", "--served-model-name")

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def service(sweep: Sweep, *, trial: int | None, port: int = 30000) -> Service:
    """The service of the best trial, or of the named one.

    Raises:
        InputError: there is no such trial, it did not complete, or no server was
            launched for it; or the record holds what a service cannot.
    """
    started = sweep.started
    if started is None:
        raise InputError(
            "the record has no beginning, so it is not known what was measured",
            where="trials.jsonl",
            advice="Give the folder of another sweep.",
        )
    chosen = _choose(sweep, started, trial)
    launched = chosen.launched
    if launched is None:
        raise InputError(
            f"trial {chosen.number} launched no server, so there is no command to install",
            where=f"sweep {started.sweep}",
            advice="Export a trial of a server that the sweeper started itself.",
        )
    return Service(
        name=started.sweep,
        description=f"{started.engine}, trial {chosen.number} of sweep {started.sweep}",
        command=_command(launched.command, port),
        env=_environment(launched.env, started.environment),
        start_seconds=chosen.start_seconds,
        port=port,
        provenance=_provenance(sweep, started, chosen),
        notes=_notes(sweep, chosen, launched),
        user=_user(started.environment.get("user")),
        working_directory=_text(started.environment.get("working_directory")),
    )


def _choose(sweep: Sweep, started: SweepStarted, number: int | None) -> Trial:
    complete = [t.number for t in sweep.trials.values() if t.state == "complete"]
    where = f"sweep {started.sweep}"
    if number is None:
        if sweep.best is None:
            raise InputError(
                "no trial completed, so there is nothing to export",
                where=where,
                advice="Read its summary.md for what went wrong.",
            )
        return sweep.best
    listed = ", ".join(map(str, sorted(complete)))
    advice = f"Complete: {listed}." if complete else "No trial of this sweep completed."
    if number not in sweep.trials:
        raise InputError(f"there is no trial {number}", where=where, advice=advice)
    if number not in complete:
        state = sweep.trials[number].state
        raise InputError(
            f"trial {number} did not complete: it is {state}", where=where, advice=advice
        )
    return sweep.trials[number]


def _command(command: Sequence[str], port: int) -> tuple[str, ...]:
    kept: list[str] = []
    value_follows = False
    for word in command:
        if not value_follows and word.partition("=")[0] not in _DROPPED:
            kept.append(word)
        value_follows = not value_follows and word in _DROPPED
    return (*kept, "--port", str(port))


def _environment(env: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, str]:
    shell = facts.get("shell")
    if not isinstance(shell, Mapping):
        shell = {}
    inherited = {name: str(shell[name]) for name in _FROM_SHELL if shell.get(name) is not None}
    return {**inherited, **env}


def _provenance(sweep: Sweep, started: SweepStarted, trial: Trial) -> tuple[str, ...]:
    lines = [
        f"Sweep {started.sweep} of {started.time:%Y-%m-%d}, trial {trial.number}: {trial.label}",
        f"Engine: {started.engine} {started.engine_version or '(version not known)'}",
        f"Model: {started.model}, {started.model_description}",
        *_numbers(sweep, trial),
    ]
    if started.emulated:
        lines.append("EMULATED: no real server was measured. Do not install this.")
    elif started.device == "cpu":
        lines.append("Measured on CPU: do not install on a GPU node as it is.")
    return tuple(_one_line(line) for line in lines)


def _numbers(sweep: Sweep, trial: Trial) -> list[str]:
    change = sweep.change(trial)
    lines = []
    if trial.single_stream is not None:
        lines.append(
            f"Single stream: {trial.single_stream:,.1f} tok/s{_against(change.single_stream)}"
        )
    if trial.peak is not None:
        value, concurrency = trial.peak
        lines.append(f"Peak: {value:,.1f} tok/s at C={concurrency}{_against(change.peak)}")
    return lines


def _against(percent: float | None) -> str:
    if percent is None:
        return ", measured once"
    # Adding zero turns -0.0 into 0.0.
    return f", {round(percent, 1) + 0.0:+.1f} % against the baseline, measured once"


def _notes(sweep: Sweep, trial: Trial, launched: ServerLaunched) -> tuple[str, ...]:
    notes = ["The settings are those of the trial. Left out: its port, its served model name."]
    if trial.baseline:
        notes.append("This is the baseline of the sweep, not a configuration that it found.")
    if sweep.best and trial is not sweep.best:
        notes.append(f"Trial {sweep.best.number} of the sweep has a higher score.")
    command = tuple(launched.command)
    if option(command, "--host") in (None, *_LOOPBACK):
        notes.append("It listens on this machine only. Change --host to serve others.")
    if launched.gpus:
        notes.append(f"The trial ran on these GPUs: {', '.join(launched.gpus)}.")
    if any(level.failed_requests for level in trial.levels.values()):
        notes.append("Some requests of the measurement failed: see the summary of the sweep.")
    return tuple(_one_line(note) for note in notes)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _user(value: Any) -> str | None:
    """A name. Where the machine had none for the account, a number was recorded."""
    name = _text(value)
    return None if name and name.isdigit() else name


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
