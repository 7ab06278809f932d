"""The commands: parse, call, print. No logic lives here."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from sweeper.errors import SweeperError

app = typer.Typer(
    help="Finds the fastest honest configuration of an SGLang server on one node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SpaceArgument = Annotated[Path, typer.Argument(help="The search-space file.", metavar="SPACE")]
SweepArgument = Annotated[
    Path, typer.Argument(help="The folder of a sweep, as run printed it.", metavar="SWEEP")
]
INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


@app.callback()
def _root() -> None:
    """Finds the fastest honest configuration of an SGLang server on one node."""


@app.command()
def run(
    space: SpaceArgument,
    results: Annotated[Path, typer.Option(help="Where the sweep's folder is made.")] = Path(
        "results"
    ),
    engine: Annotated[
        str | None,
        typer.Option(help='"emulated" plays the sweep through with made-up numbers, on no GPU.'),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Candidates beside the baseline, instead of the file's."),
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(help='No trial starts after this time: "90m", "8h".')
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A directory, a hub id or a built-in model.")
    ] = None,
) -> None:
    """Run a sweep: start servers, measure them, find the fastest configuration."""
    from sweeper.report.screen import PatientConsole, Screen
    from sweeper.report.summary import short
    from sweeper.search import run as sweep_run
    from sweeper.search.introduction import introduction
    from sweeper.search.prepare import Overrides, prepare

    overrides = Overrides(model, engine, trials, _duration(time_budget, "--time-budget"))
    prepared = prepare(space, results=results, overrides=overrides, command=sys.argv)
    folder = prepared.plan.folder
    screen = Screen(folder.log, PatientConsole())
    screen.say(introduction(prepared))
    outcome = sweep_run.run(prepared, screen)
    sweep = outcome.sweep
    screen.say_markdown("\n" + short(sweep))
    screen.say(sweep_run.what_next(sweep, folder))
    if outcome.problem:
        typer.echo(f"error: {outcome.problem}", err=True)
    interrupted = sweep.ended is not None and sweep.ended.reason == sweep_run.INTERRUPTED
    if outcome.ray_is_gone:
        _leave(INTERRUPTED if interrupted else 1)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if sweep.best is None or outcome.problem:
        raise typer.Exit(1)


@app.command()
def report(sweep: SweepArgument) -> None:
    """Rebuild summary.md and best.yaml of a sweep from its log, and print the summary."""
    from sweeper.errors import MachineError
    from sweeper.records.folder import SweepFolder
    from sweeper.records.log import read_events
    from sweeper.records.sweep import replay
    from sweeper.report.files import write_reports
    from sweeper.report.summary import summary

    folder = SweepFolder(sweep.absolute())
    try:
        found = write_reports(folder)
    except MachineError:
        typer.echo(summary(replay(read_events(folder.log))))
        raise
    typer.echo(summary(found))


@app.command()
def export(
    sweep: SweepArgument,
    trial: Annotated[
        int | None, typer.Option(min=0, help="Another trial than the best one.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", help="systemd is the only one so far.")
    ] = "systemd",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the service listens.")] = 30000,
    output: Annotated[
        Path | None, typer.Option(help="The file to write; by default the text is printed.")
    ] = None,
) -> None:
    """Write the best configuration of a sweep as a systemd unit."""
    from sweeper.errors import InputError
    from sweeper.export.from_sweep import service
    from sweeper.export.systemd import unit
    from sweeper.records.files import write_atomically
    from sweeper.records.folder import SweepFolder
    from sweeper.records.log import read_events
    from sweeper.records.sweep import replay

    if kind != "systemd":
        raise InputError(f"unknown format {kind!r}", where="--format", advice="allowed: systemd")
    state = replay(read_events(SweepFolder(sweep.absolute()).log))
    text = unit(service(state, trial=trial, port=port))
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text)
        typer.echo(f"written: {output}")


@app.command()
def check(
    space: SpaceArgument,
    device: Annotated[
        str | None,
        typer.Option(help='"cuda" (the node) or "cpu" (a laptop); by default what is here.'),
    ] = None,
) -> None:
    """Read a search-space file, hold it against the installed engine, say what is wrong.

    Starts no server.
    """
    from sweeper.errors import InputError
    from sweeper.machine.gpus import gpus
    from sweeper.search.prepare import Overrides, checked, device_here
    from sweeper.spec.rules import DEVICES, parameters

    device = device or device_here(space, Overrides(), gpus())
    if device not in DEVICES:
        raise InputError(f"{device!r} is no device", where="--device", advice="Give cuda or cpu.")
    loaded, parser = checked(space, device, Overrides())
    count = len(parameters(loaded.space))
    engine = f"SGLang {parser.versions.get('sglang')}" if parser else "no engine to ask about flags"
    if loaded.space.engine.kind == "emulated":
        engine = f"EMULATED, with the flags of {engine}"
    typer.echo(
        f"{space}: no problem found; {count} parameters, model {loaded.space.model}, "
        f"{engine}, device {device}"
    )


@app.command()
def doctor(
    clean: Annotated[
        bool, typer.Option("--clean", help="End and remove what earlier sweeps left.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="The interpreter that should have SGLang.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where sweeps are kept.")] = Path("results"),
) -> None:
    """Show who is on the GPUs, what a sweep needs, and what earlier sweeps left.

    Only processes and files that carry the sweeper's own tag are ever ended or removed.
    """
    from sweeper import doctor as doctors

    found = doctors.examine(python=python, results=results)
    if clean:
        for line in doctors.clean(found) or ["nothing is left of earlier sweeps"]:
            typer.echo(line)
        found = doctors.examine(python=python, results=results)
    typer.echo(doctors.text(found))
    if found.leftovers:
        raise typer.Exit(1)


def _duration(text: str | None, where: str) -> float | None:
    from sweeper.errors import InputError
    from sweeper.spec.values import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(str(error), where=where) from None


def _tell_what_takes_long() -> None:
    # Making a model takes half a minute: whoever waits should know for what.
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("sweeper")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def main() -> None:
    """Run a command. An error that the user can act on is shown without a traceback."""
    _tell_what_takes_long()
    try:
        app()
    except SweeperError as error:
        typer.echo(f"error: {error}", err=True)
        _leave(error.exit_status)
    except OSError as error:
        # A full disk, a closed pipe: nothing that a traceback would explain.
        with contextlib.suppress(OSError):
            typer.echo(f"error: {error}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the last flush must not fail again
        _leave(1)


def _leave(status: int) -> NoReturn:
    """End now. Where Ray ran and was ended, the way out by Python would wait for it a minute."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
