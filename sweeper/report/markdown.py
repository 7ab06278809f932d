"""Pieces of Markdown that hold any text without being changed by it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from sweeper.report.words import clean_line, plain

_LINE = 300


def code(text: str) -> str:
    """Text as code, inside a table too.

    In a cell a pipe ends the cell even between backticks. So text with pipes or
    backticks is written as HTML, where every special character has another spelling.
    """
    text = plain(text)
    if not text:
        return ""
    if not re.search(r"[`|\\]", text):
        return f"`{text}`"
    return f"<code>{_entities(text)}</code>"


def words(text: str) -> str:
    """Text as it stands, with nothing in it taken for Markdown."""
    return _entities(plain(text))


def block(lines: Iterable[str]) -> str:
    """Lines of a log as a code block; very long ones are cut."""
    shown = [clean_line(line).rstrip() for line in lines]
    shown = [line if len(line) <= _LINE else f"{line[:_LINE]}..." for line in shown]
    runs = [len(run) for line in shown for run in re.findall(r"`+", line)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    return "\n".join([f"{fence}text", *shown, fence])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table from cells that are Markdown already; the first column left, numbers right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _entities(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"[`|\\*\[\]~#]", lambda match: f"&#{ord(match[0])};", escaped)
    # Inside a word an underscore means nothing, and names of variables are full of them.
    return re.sub(r"(?<![A-Za-z0-9_])_|_(?![A-Za-z0-9_])", "&#95;", escaped)
