"""The commands: parse, call, print. No logic lives here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweeper.errors import SweeperError

app = typer.Typer(
    help="Finds the fastest honest configuration of an SGLang server on one node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Finds the fastest honest configuration of an SGLang server on one node."""


@app.command()
def check(
    space: Annotated[Path, typer.Argument(help="The search-space file.")],
    device: Annotated[
        str, typer.Option(help='Check for "cuda" (the node) or "cpu" (a laptop).')
    ] = "cuda",
) -> None:
    """Read a search-space file and say what is wrong with it. Starts nothing."""
    from sweeper.errors import InputError
    from sweeper.spec.load import load_space
    from sweeper.spec.rules import DEVICES, parameters

    if device not in DEVICES:
        raise InputError(f"{device!r} is no device", where="--device", advice="Give cuda or cpu.")
    loaded = load_space(space, device=device)
    count = len(parameters(loaded.space))
    typer.echo(f"{space}: no problem found; {count} parameters, model {loaded.space.model}")


def main() -> None:
    """Run a command. An error that the user can act on is shown without a traceback."""
    try:
        app()
    except SweeperError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_status)
