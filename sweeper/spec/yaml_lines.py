"""YAML as plain Python values, with the line that each of them came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.errors import InputError

Location = tuple[str | int, ...]

# A search space is a page of text. Anything larger is a wrong file, and
# parsing it would look like a hang.
MAX_BYTES = 1_000_000
# Aliases can make millions of values of a page, or a value that holds itself.
MAX_VALUES = 50_000
MAX_DEPTH = 40


@dataclass(frozen=True)
class YamlDocument:
    """A parsed file.

    Args:
        path: where it was read from.
        data: dictionaries, lists, strings, numbers, booleans and None.
        lines: the line, counted from 1, of each location in ``data``.
    """

    path: Path
    data: Any
    lines: dict[Location, int]

    def line(self, location: Location) -> int:
        """The line of ``location``, or of the nearest thing around it that is in the file."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1


def read_yaml(path: Path) -> YamlDocument:
    """Read one YAML 1.2 document.

    Raises:
        InputError: with the line, where the file cannot be read or is no YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text = _read_text(path)
    try:
        node = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InputError(
            f"not valid YAML: {error.problem or error.context}",
            where=where,
            advice="Check indentation, colons and quotes on that line and the one above it.",
        ) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"not valid YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            where=str(path),
        ) from None
    lines: dict[Location, int] = {(): 1}
    return YamlDocument(path, _plain(node, (), lines, path), lines)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"the file is larger than {MAX_BYTES:,} bytes",
                where=str(path),
                advice="A search-space file is a page of YAML; is this the right file?",
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            "no such file",
            where=str(path),
            advice="The search spaces that come with the project are in search_spaces/.",
        ) from None
    except IsADirectoryError:
        raise InputError(
            "this is a directory; a search-space file is needed", where=str(path)
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text (byte {error.start})",
            where=str(path),
            advice="Save the file as UTF-8.",
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _plain(node: Any, location: Location, lines: dict[Location, int], path: Path) -> Any:
    """Strip the reader's own types and note the line of every key and item."""
    if len(location) > MAX_DEPTH or len(lines) > MAX_VALUES:
        what = "nested too deeply" if len(location) > MAX_DEPTH else "too many values"
        raise InputError(
            f"{what} for a search space, aliases included",
            where=f"{path}, line {lines.get(location, 1)}",
            advice="Write it without anchors and aliases, or more simply.",
        )
    if isinstance(node, dict):
        plain: dict[str, Any] = {}
        for key, value in node.items():
            name = key if isinstance(key, str) else str(key)
            here = (*location, name)
            lines[here] = _line_of(node, key, "key", lines.get(location, 1))
            plain[name] = _plain(value, here, lines, path)
        return plain
    if isinstance(node, list):
        for index in range(len(node)):
            lines[(*location, index)] = _line_of(node, index, "item", lines.get(location, 1))
        return [_plain(item, (*location, index), lines, path) for index, item in enumerate(node)]
    for kind in (bool, int, float, str):
        # bool first: the reader's boolean is an int.
        if isinstance(node, kind) or (kind is bool and type(node).__name__ == "ScalarBoolean"):
            return kind(node)
    if node is None:
        return None
    return str(node)  # a date, for instance: the schema says what was expected


def _line_of(node: Any, key: Any, kind: str, fallback: int) -> int:
    try:
        return int(getattr(node.lc, kind)(key)[0]) + 1
    except (AttributeError, KeyError, TypeError):
        return fallback  # came in through an anchor or a merge key
