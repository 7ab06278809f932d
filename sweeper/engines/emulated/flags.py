"""The command line of the emulated engine: SGLang's own where its parser was read, else a few flags.

It fails as SGLang does: argparse's words on standard error, and exit status 2.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = "sglang serve"
"""How SGLang 0.5.23 calls itself in its errors, also when started as a module."""

# What the emulated engine itself asks for, with the defaults of SGLang 0.5.23. The
# types are also those of flags whose own type the list of the parser cannot tell.
_TEXT: Mapping[str, str | None] = {
    "attention-backend": None,
    "decode-attention-backend": None,
    "dtype": "auto",
    "host": "127.0.0.1",
    "kv-cache-dtype": "auto",
    "load-format": "auto",
    "log-level": "info",
    "log-level-http": None,
    "prefill-attention-backend": None,
    "quantization": None,
    "schedule-policy": "fcfs",
    "served-model-name": None,
    "tokenizer-path": None,
    "api-key": None,
    "speculative-algorithm": None,
}
_INT: Mapping[str, int | None] = {
    "chunked-prefill-size": None,
    "context-length": None,
    "cuda-graph-max-bs-decode": None,
    "decode-log-interval": 40,
    "dist-timeout": None,
    "max-prefill-tokens": 16384,
    "max-running-requests": None,
    "max-total-tokens": None,
    "nccl-port": None,
    "num-continuous-decode-steps": 1,
    "page-size": None,
    "port": 30000,
    "random-seed": None,
    "speculative-eagle-topk": None,
    "speculative-num-draft-tokens": None,
    "speculative-num-steps": None,
    "stream-interval": 1,
}
_FLOAT: Mapping[str, float | None] = {
    "mem-fraction-static": None,
    "schedule-conservativeness": 1.0,
    "watchdog-timeout": 300.0,
}
_SWITCHES = (
    "disable-cuda-graph",
    "disable-custom-all-reduce",
    "disable-overlap-schedule",
    "disable-radix-cache",
    "enable-dp-attention",
    "enable-metrics",
    "enable-mixed-chunk",
    "enable-nccl-nvls",
    "enable-symm-mem",
    "enable-torch-compile",
    "skip-server-warmup",
    "skip-tokenizer-init",
    "trust-remote-code",
)
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "model-path": ("model",),
    "tp-size": ("tensor-parallel-size", "tp"),
    "pp-size": ("pipeline-parallel-size", "pp"),
    "dp-size": ("data-parallel-size", "dp"),
    "ep-size": ("expert-parallel-size", "ep"),
    "speculative-draft-model-path": ("speculative-draft-model",),
}


def parse(argv: Sequence[str], known: Path | None) -> dict[str, Any]:
    """The flags by their name in the parser, defaults included.

    Args:
        argv: the words after the program.
        known: the list of flags that SGLang's parser takes, as
            :mod:`sweeper.engines.sglang.parser` caches it. Without it a flag that is
            not known is taken for one of SGLang's all the same.

    Raises:
        SystemExit: with status 2, for what argparse refuses; it has told why.
        OSError, ValueError, KeyError: the list cannot be read.
    """
    if known is not None:
        options = json.loads(known.read_text(encoding="utf-8"))
        return vars(_parser(options, abbreviations=True).parse_args(list(argv)))
    parser = _parser(_short_list(), abbreviations=False)
    told, rest = parser.parse_known_args(list(argv))
    return {**vars(told), **_others(rest, parser)}


def _parser(
    options: Iterable[Mapping[str, Any]], *, abbreviations: bool
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, allow_abbrev=abbreviations)
    for option in options:
        names, dest, default = option["options"], option["dest"], option["default"]
        if not names or dest == "help":
            continue
        if option["takes"] == "nothing":
            parser.add_argument(*names, dest=dest, action=_Switch, default=default)
            continue
        nargs = {"one": "?" if option["bare"] else None, "many": "*" if option["bare"] else "+"}
        parser.add_argument(
            *names,
            dest=dest,
            default=default,
            required=dest == "model_path",
            nargs=nargs[option["takes"]],
            choices=option["choices"],
            type=_type(dest, option["number"]),
        )
    return parser


class _Switch(argparse.Action):
    """A flag without a value, also in the forms ``--no-x`` and of a default that is true."""

    def __init__(self, option_strings: Sequence[str], dest: str, default: Any = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=default)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del parser, values
        both = any(name.startswith("--no-") for name in self.option_strings)
        off = (option_string or "").startswith("--no-") if both else self.default is True
        setattr(namespace, self.dest, not off)


def _type(dest: str, number: str | None) -> Any:
    name = dest.replace("_", "-")
    if number == "int" or name in _INT:
        return int
    if number == "float" or name in _FLOAT:
        return float
    return str


def _short_list() -> list[dict[str, Any]]:
    def option(name: str, default: Any, number: str | None, takes: str = "one") -> dict[str, Any]:
        return {
            "options": [f"--{each}" for each in (name, *_ALIASES.get(name, ()))],
            "dest": name.replace("-", "_"),
            "takes": takes,
            "bare": takes == "nothing",
            "choices": None,
            "default": default,
            "number": number,
        }

    sizes = [option(name, 1, "int") for name in _ALIASES if name.endswith("-size")]
    return [
        *(option(name, None, None) for name in _ALIASES if not name.endswith("-size")),
        *sizes,
        *(option(name, default, None) for name, default in _TEXT.items()),
        *(option(name, default, "int") for name, default in _INT.items()),
        *(option(name, default, "float") for name, default in _FLOAT.items()),
        *(option(name, False, None, "nothing") for name in _SWITCHES),
        option("cuda-graph-bs-decode", None, "int", "many"),
    ]


def _others(words: Sequence[str], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Flags that are not on the short list, with what follows them."""
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > len("--"):
            flag, equals, value = word[2:].partition("=")
            name = flag.replace("-", "_")
            found[name] = value if equals else True
        elif not name:
            parser.error(f"unrecognized arguments: {word}")
        elif found[name] is True:
            found[name] = word
        else:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else [before]), word]
    return found
