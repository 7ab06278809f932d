"""Writes the command line of the installed SGLang as JSON.

    python dump_parser.py OUTFILE

It runs in the engine's interpreter, which may not have Sweeper installed, so
it imports nothing of Sweeper. The file holds one object per option of SGLang's
own parser (``ServerArgs.add_cli_args``, in all versions from 0.5.5 to 0.5.23).
The last line on standard output is a JSON object with versions of libraries.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import sys
from pathlib import Path
from typing import Any

EXIT_MISSING = 3

LIBRARIES = {
    "sglang": ("sglang",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "flashinfer": ("flashinfer-python", "flashinfer"),
}


def takes(action: argparse.Action) -> str:
    """What may follow the option: "nothing", "one" value or "many"."""
    if action.nargs == 0:
        return "nothing"
    if action.nargs in (None, "?", 1):
        return "one"
    return "many"


def plain(value: Any) -> Any:
    """``value`` if JSON can hold it, else how Python shows it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value


def is_deprecated(action: argparse.Action) -> bool:
    """Whether the help begins with it, or the action is of one of SGLang's classes for it.

    Further on in a help text the word is about another flag.
    """
    told = (action.help or "").lower().lstrip("([ ").startswith("deprecated")
    return told or type(action).__name__.startswith("Deprecated")


def describe(action: argparse.Action) -> dict[str, Any]:
    """Describe one option."""
    return {
        "options": [option for option in action.option_strings if option.startswith("--")],
        "dest": action.dest,
        "takes": takes(action),
        "bare": action.nargs in (0, "?", "*"),
        "choices": None if action.choices is None else sorted(str(c) for c in action.choices),
        "default": plain(action.default),
        "deprecated": is_deprecated(action),
        "number": action.type.__name__ if action.type in (int, float) else None,
    }


def versions() -> dict[str, str]:
    """Versions of what decides how a server behaves; what is absent is left out."""
    found = {"python": platform.python_version()}
    for name, distributions in LIBRARIES.items():
        for distribution in distributions:
            try:
                found[name] = importlib.metadata.version(distribution)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    try:
        import torch

        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception as error:
        # A PyTorch without CUDA has no NCCL, and says so in many ways.
        sys.stderr.write(f"no version of NCCL: {error}\n")
    return found


def main() -> int:
    """Write the file."""
    if importlib.util.find_spec("sglang") is None:
        sys.stderr.write("sglang\n")
        return EXIT_MISSING
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    described = [describe(action) for action in parser._actions if action.option_strings]
    Path(sys.argv[1]).write_text(json.dumps(described) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(versions()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
