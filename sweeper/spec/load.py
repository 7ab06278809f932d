"""From a file on disk to a checked space, or to an error on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeper.errors import InputError
from sweeper.spec import rules
from sweeper.spec.problems import Problem, from_pydantic, raise_for
from sweeper.spec.schema import SpaceFile
from sweeper.spec.yaml_lines import Location, YamlDocument, read_yaml

_OVERRIDES = "without_gpu"


@dataclass(frozen=True)
class LoadedSpace:
    """A checked space, and the file that it came from."""

    space: SpaceFile
    document: YamlDocument
    device: str

    def raise_for(self, problems: Sequence[Problem]) -> None:
        """Raise one error for problems that were found later, with the lines of the file.

        Raises:
            InputError: where there are any.
        """
        raise_for([_relocate(p, self.document, self.device) for p in problems], self.document)


def load_space(
    path: Path, *, device: str, model: str | None = None, engine: str | None = None
) -> LoadedSpace:
    """Read and check the search-space file at ``path``.

    Args:
        path: the file.
        device: ``cuda`` or ``cpu``; on ``cpu`` the section ``without_gpu`` applies.
        model: replaces the file's model, from the command line.
        engine: replaces the kind of its engine, in the same way.

    Raises:
        InputError: every problem of the file, with lines. The file is checked
            for both devices, so that it cannot be right here and wrong there.
    """
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        found = "empty" if document.data is None else f"a {type(document.data).__name__}"
        raise InputError(
            f"a search space is a mapping of fields; this file is {found}",
            where=str(path),
            advice="Start from one of the files in search_spaces/.",
        )
    spaces: dict[str, SpaceFile] = {}
    problems: dict[Problem, None] = {}
    for one in rules.DEVICES:
        data = merged(document.data, one)
        if model is not None:
            data["model"] = model
        if engine is not None:
            data["engine"] = with_engine(data.get("engine"), engine)
        space, found_here = _validate(data)
        problems |= dict.fromkeys(_relocate(problem, document, one) for problem in found_here)
        if space is not None:
            spaces[one] = space
    raise_for(list(problems), document)
    return LoadedSpace(spaces[device], document, device)


def merged(data: dict[str, Any], device: str) -> dict[str, Any]:
    """The file's fields as they hold on ``device``. Mappings are merged, all else replaced."""
    overrides = data.get(_OVERRIDES)
    if device != "cpu" or not isinstance(overrides, dict):
        return dict(data)
    return {**_merge(data, overrides), _OVERRIDES: overrides}


def with_engine(section: Any, kind: str) -> Any:
    """The section ``engine`` with another kind. What is no section stays, to be complained about."""
    if section is None or isinstance(section, str):
        return kind
    return {**section, "kind": kind} if isinstance(section, dict) else section


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return result


def _validate(data: dict[str, Any]) -> tuple[SpaceFile | None, list[Problem]]:
    try:
        space = SpaceFile.model_validate(data)
    except ValidationError as error:
        return None, [
            from_pydantic(detail, SpaceFile) for detail in error.errors(include_url=False)
        ]
    return space, rules.check(space)


def _relocate(problem: Problem, document: YamlDocument, device: str) -> Problem:
    """Point at the override where the value came from there."""
    location: Location = (_OVERRIDES, *problem.location)
    if device == "cpu" and location in document.lines and problem.location[:1] != (_OVERRIDES,):
        return Problem(location, problem.what, problem.advice)
    return problem
