"""Shows a sweep while it runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sweeper.records.log import EventReader
from sweeper.records.sweep import Sweep
from sweeper.report.lines import line
from sweeper.report.live import view


class PatientConsole(Console):
    """A console whose reader may go away ("| head"): the sweep goes on, its record is on disk."""

    def on_broken_pipe(self) -> None:
        """Say no more; rich would end the program here."""
        if self.file is sys.stdout:
            # The last flush, at the end of the program, must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self.file = io.StringIO()


class Screen:
    """Follows the log of one sweep. It knows nothing that is not in the log.

    Use it as a context manager, so that the terminal is put back in order
    whatever happens.
    """

    def __init__(self, log: Path, console: Console) -> None:
        self._reader = EventReader(log)
        self._console = console
        self._sweep = Sweep()
        self._note = ""
        self._live = (
            Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")
            if console.is_terminal
            else None
        )

    @property
    def sweep(self) -> Sweep:
        """The state at the last refresh."""
        return self._sweep

    def say(self, lines: Sequence[str]) -> None:
        """Print sentences that stay above the view."""
        for each in lines:
            self._print(Text(each))

    def say_markdown(self, text: str) -> None:
        """Print Markdown: set for people on a terminal, as it is anywhere else."""
        if self._console.is_terminal:
            from rich.markdown import Markdown

            self._console.print(Markdown(text))
        else:
            self._print(Text(text))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.refresh(self._note)
        if self._live:
            self._live.stop()

    def refresh(self, note: str = "") -> None:
        """Show what is new. ``note`` is a sentence about what the program is doing now."""
        for event in self._reader.new():
            self._sweep.apply(event)
            if self._live is None and (text := line(self._sweep, event)):
                self._print(Text(text))
        if self._live is not None:
            self._live.update(view(self._sweep, datetime.now(UTC), note=note), refresh=True)
        elif note and note != self._note:
            self._print(Text(note))
        self._note = note
