"""The command line of the SGLang that is installed, never a table of our own.

Flags come, go and change their meaning between versions. So the installed
parser is asked (:mod:`sweeper.engines.sglang.dump_parser`), once: the answer is
kept in the cache, and a later call only looks whether SGLang is still the same.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sweeper.errors import MachineError
from sweeper.models.cache import MANIFEST, Recipe, build_once, cache_root
from sweeper.models.engine_script import last_lines, run_engine_script

logger = logging.getLogger(__name__)

Takes = Literal["nothing", "one", "many"]

_SCRIPT = Path(__file__).with_name("dump_parser.py")
_FILE = "flags.json"
_FORMAT = "2"
"""Of the file. A new meaning of a field needs a new number, or old entries would be read."""

_ADVICE = (
    'Install it there: pip install "sweeper[engine]". '
    "Or set engine.python to the interpreter that has SGLang."
)

# Finds SGLang without importing it, which would take seconds. The options are
# declared in server_args.py and, in later versions, in the folder arg_groups;
# the newest of these files dates an installation that is edited in place.
_PROBE = """
import importlib.metadata, importlib.util, json, pathlib
spec = importlib.util.find_spec("sglang")
found = {"sglang": None}
if spec is not None and spec.submodule_search_locations:
    folder = pathlib.Path(list(spec.submodule_search_locations)[0])
    srt = folder / "srt"
    files = [srt / "server_args.py", *srt.glob("arg_groups/**/*.py")]
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    changed = max((file.stat().st_mtime_ns for file in files if file.exists()), default=0)
    found = {"sglang": version, "folder": str(folder), "changed": str(changed)}
print(json.dumps(found))
"""
_PROBE_TIMEOUT = 60.0


@dataclass(frozen=True)
class Flag:
    """One option of the engine.

    Args:
        dest: the setting that it writes; the names of one setting share it.
        takes: what follows it.
        choices: the values that it accepts, as text; None where any text will do.
        default: what SGLang takes without it, or how Python shows that.
        deprecated: SGLang says that it will go away.
        bare: it may stand without a value.
        number: it takes whole numbers or any; None where text will do, or it is not known.
    """

    dest: str
    takes: Takes
    choices: tuple[str, ...] | None = None
    default: Any = None
    deprecated: bool = False
    bare: bool = False
    number: Literal["int", "float"] | None = None


@dataclass(frozen=True)
class InstalledParser:
    """What the installed engine accepts.

    Args:
        versions: of sglang, torch, transformers, flashinfer, nccl and python, where known.
        flags: by name without dashes, aliases and ``no-`` forms included.
        file: where the answer is kept.
    """

    versions: Mapping[str, str]
    flags: Mapping[str, Flag]
    file: Path | None = None


def installed_parser(python: Path) -> InstalledParser:
    """The command line of the SGLang that ``python`` has.

    Raises:
        MachineError: there is no such interpreter, it is no Python, it has no
            SGLang, or SGLang cannot be imported; the message says which.
    """
    source = _probe(python)
    recipe = Recipe("sglang-parser", "the list of SGLang's flags", source)
    folder = cache_root() / "engines"

    def build(directory: Path) -> Mapping[str, str]:
        logger.info("Reading the flags of SGLang %s (some seconds, once) ...", source["sglang"])
        return run_engine_script(
            python, _SCRIPT, str(directory / _FILE), what="read SGLang's flags", timeout=300
        )

    entry = build_once(folder, recipe, build)
    try:
        return _read(entry)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The cache compares sizes only. What it holds is not worth a repair.
        logger.warning("The cached list of SGLang's flags is damaged; it is made again.")
        shutil.rmtree(entry, ignore_errors=True)
        return _read(build_once(folder, recipe, build))


def _read(entry: Path) -> InstalledParser:
    manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
    options = json.loads((entry / _FILE).read_text(encoding="utf-8"))
    return InstalledParser(
        versions={str(name): str(text) for name, text in manifest["made_with"].items()},
        flags=flags_of(options),
        file=entry / _FILE,
    )


def flags_of(options: list[dict[str, Any]]) -> dict[str, Flag]:
    """The flags by name, from what the script wrote.

    Raises:
        KeyError: a field is missing.
    """
    flags: dict[str, Flag] = {}
    for option in options:
        flag = Flag(
            dest=option["dest"],
            takes=option["takes"],
            choices=None if option["choices"] is None else tuple(option["choices"]),
            default=option["default"],
            deprecated=option["deprecated"],
            bare=option["bare"],
            number=option["number"],
        )
        flags |= {name.removeprefix("--"): flag for name in option["options"]}
    return flags


def _probe(python: Path) -> dict[str, str]:
    """What identifies the installation: interpreter, version, place, date."""
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            # A folder "sglang" in the working directory is not the installed one.
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise MachineError(
            f"the engine's Python interpreter cannot be started: {error.strerror}",
            where=str(python),
            advice="Set engine.python to the interpreter of the environment that has SGLang.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"the engine's Python interpreter did not answer within {_PROBE_TIMEOUT:.0f} s",
            where=str(python),
            advice="Look whether the machine is busy, or its file system slow, then try again.",
        ) from error
    try:
        found = json.loads(last_lines(done.stdout, 1))
        version = found["sglang"]
    except (ValueError, KeyError, TypeError):
        words = last_lines(done.stderr, 3) or last_lines(done.stdout, 3)
        raise MachineError(
            f"this is no Python interpreter that works (exit status {done.returncode})",
            where=str(python),
            advice="Set engine.python to the interpreter of the environment that has SGLang."
            + (f" Its last words:\n{words}" if words else ""),
        ) from None
    if version is None:
        raise MachineError("SGLang is not installed there", where=str(python), advice=_ADVICE)
    place = {"format": _FORMAT, "python": str(python.absolute())}
    return {**place, **{name: str(text) for name, text in found.items()}}
