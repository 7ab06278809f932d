"""Holds a search space against the SGLang that is installed. Nothing is started.

Every fault found here would otherwise cost a start of the server, in every trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.engines.sglang.launch import TENSOR_PARALLEL
from sweeper.engines.sglang.parser import Flag, InstalledParser
from sweeper.spec.parameters import Parameter
from sweeper.spec.problems import Problem, suggestion
from sweeper.spec.rules import can_take, parameters
from sweeper.spec.schema import Named, SpaceFile
from sweeper.spec.values import UNSET
from sweeper.spec.yaml_lines import Location

# The settings that choose an attention backend of the model itself.
ATTENTION = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
CPU_ATTENTION = "torch_native"
"""The one backend of SGLang 0.5.23 that runs without its compiled kernels."""

_BY_HAND = ("baseline", "search")
_NOT_HERE = "Give the parameter the condition when: {device: cuda}."
_NOT_HERE_FIXED = "Set it to false under without_gpu.engine.args; false does not give the flag."


@dataclass(frozen=True)
class _Use:
    """One place of the file that gives a flag values; without a parameter they are fixed."""

    location: Location
    name: str
    values: tuple[Any, ...]
    parameter: Parameter | None = None


def check(space: SpaceFile, parser: InstalledParser, device: str) -> list[Problem]:
    """Every problem that the installed engine or this machine has with the space.

    Args:
        space: the file, as it holds on ``device``.
        parser: the installed engine's command line.
        device: ``cuda`` or ``cpu``.
    """
    possible = _possible(space, device)
    uses = list(_uses(space))
    problems: list[Problem] = []
    for use in uses:
        flag = parser.flags.get(use.name)
        if flag is None:
            if use.location[0] not in _BY_HAND:  # it is told once, where it is defined
                problems.append(_unknown(use, parser))
        else:
            problems += _values(use, flag, parser.flags)
    active = [u for u in uses if u.parameter is None or f"args.{u.name}" in possible]
    problems += _twice(active, parser.flags)
    if device == "cpu":
        problems += _not_on_cpu(active, parser.flags)
    if not possible:
        problems.append(
            Problem(
                ("space",),
                f'nothing to search on this machine: no parameter exists on the device "{device}"',
                "Add a parameter without a device in its when, or run it where the device is.",
            )
        )
    return list(dict.fromkeys(problems))


def active_on(parameter: Parameter, device: str) -> bool:
    """Whether the parameter's own ``when`` allows it on ``device``."""
    wanted = parameter.when.get("device")
    return wanted is None or device in wanted


def _possible(space: SpaceFile, device: str) -> dict[str, Parameter]:
    """The parameters that exist for at least one candidate on ``device``, by full name."""
    possible: dict[str, Parameter] = {}
    for name, parameter in parameters(space).items():  # parents come before children
        parents = {k: v for k, v in parameter.when.items() if k != "device"}
        if active_on(parameter, device) and all(
            parent in possible and any(can_take(possible[parent], value) for value in wanted)
            for parent, wanted in parents.items()
        ):
            possible[name] = parameter
    return possible


def _uses(space: SpaceFile) -> Iterator[_Use]:
    for name, parameter in space.space.args.items():
        yield _Use(("space", "args", name), name, tuple(parameter.choices or ()), parameter)
    for name, value in space.engine.args.items():
        yield _Use(("engine", "args", name), name, (value,))
    by_hand: list[tuple[Location, Named]] = [(("baseline",), space.baseline)]
    by_hand += [(("search", "first", i), named) for i, named in enumerate(space.search.first)]
    for location, named in by_hand:
        for name, value in named.args.items():
            if name in space.space.args:  # else the file's own rules have told it
                yield _Use((*location, "args", name), name, (value,), space.space.args[name])


def _unknown(use: _Use, parser: InstalledParser) -> Problem:
    engine = f"SGLang {parser.versions.get('sglang', '')}".strip()
    longer = sorted(name for name in parser.flags if name.startswith(use.name))
    if len(longer) == 1:
        return Problem(
            use.location,
            f'"{use.name}" is only the beginning of a flag; did you mean "{longer[0]}"?',
            "Write the full name: a beginning stops working when a later version has two such flags.",
        )
    hint = suggestion(use.name, parser.flags)
    return Problem(
        use.location,
        f'{engine} has no flag "{use.name}"' + (f"; {hint}" if hint else ""),
        f"beginning with it: {', '.join(longer[:8])}" if longer else "",
    )


def _values(use: _Use, flag: Flag, flags: Mapping[str, Flag]) -> Iterator[Problem]:
    for value in use.values:
        if value is False:
            yield from _false(use, flag, flags)
        elif value is None or value == UNSET:
            yield from _nothing(use, value)
        elif value is True:
            if flag.takes != "nothing" and not flag.bare:
                yield Problem(use.location, "this flag needs a value, not true", _allowed(flag))
        elif flag.takes == "nothing":
            yield Problem(
                use.location, f"this flag takes no value, found {value!r}", "allowed: true, false"
            )
        elif isinstance(value, list) and flag.takes == "one":
            yield Problem(use.location, "this flag takes one value, found a list", _allowed(flag))
        elif flag.choices is not None and not isinstance(value, Mapping):
            for item in value if isinstance(value, list) else [value]:
                if str(item) not in flag.choices:
                    yield _not_a_choice(use, item, flag)
        elif flag.number is not None and not isinstance(value, Mapping):
            for item in value if isinstance(value, list) else [value]:
                if not _is_number(item, flag.number) and not _ours(use, item):
                    kind = "a whole number" if flag.number == "int" else "a number"
                    yield Problem(use.location, f"this flag takes {kind}, found {item!r}")
    if use.parameter is not None and use.parameter.choices is None and not use.values:
        yield from _range(use, use.parameter, flag)


def _is_number(value: Any, kind: str) -> bool:
    try:
        (int if kind == "int" else float)(str(value))
    except ValueError:
        return False
    return True


def _ours(use: _Use, value: Any) -> bool:
    return value == "auto" and use.parameter is None and use.name in TENSOR_PARALLEL


def _nothing(use: _Use, value: Any) -> Iterator[Problem]:
    if use.parameter is None:
        yield Problem(
            use.location,
            "no value" if value is None else f'a fixed flag cannot be "{UNSET}"',
            "Leave the flag out, or write false, which does not give it.",
        )


def _false(use: _Use, flag: Flag, flags: Mapping[str, Flag]) -> Iterator[Problem]:
    if flag.takes != "nothing":
        # A fixed flag may be taken away so, which is how without_gpu does it.
        if use.parameter is not None:
            yield Problem(
                use.location,
                "this flag needs a value, not false",
                f'Write "{UNSET}" to leave it alone.',
            )
    elif flag.default is True and not use.name.startswith("no-"):
        negative = f"no-{use.name}"
        yield Problem(
            use.location,
            "false does not give the flag, and without it SGLang takes true",
            f'Use "{negative}" to switch it off.'
            if negative in flags
            else "It cannot be switched off.",
        )


def _range(use: _Use, parameter: Parameter, flag: Flag) -> Iterator[Problem]:
    if flag.takes == "nothing":
        yield Problem(
            use.location, "this flag takes no value, found a range", "allowed: true, false"
        )
    elif flag.number == "int" and parameter.float_range is not None:
        yield Problem(use.location, "this flag takes a whole number, found a range of others")
    elif flag.choices is not None:
        span = parameter.int_range
        # There are fewer choices than values, or all values are choices: it ends soon.
        values = range(span.low, span.high + 1, span.step) if span else ()
        wrong = next((value for value in values if str(value) not in flag.choices), None)
        if span is None:
            yield Problem(use.location, "this flag takes no range of numbers", _allowed(flag))
        elif wrong is not None:
            yield _not_a_choice(use, wrong, flag)


def _not_a_choice(use: _Use, value: Any, flag: Flag) -> Problem:
    hint = suggestion(str(value), flag.choices or ())
    return Problem(
        use.location,
        f"{value!r} is not a value of this flag" + (f"; {hint}" if hint else ""),
        _allowed(flag),
    )


def _allowed(flag: Flag) -> str:
    return f"allowed: {', '.join(flag.choices)}" if flag.choices else ""


def _twice(uses: list[_Use], flags: Mapping[str, Flag]) -> Iterator[Problem]:
    """One setting under two names. The same name twice is told by the file's own rules."""
    seen: dict[str, _Use] = {}
    for use in uses:
        if use.name not in flags or use.location[0] in _BY_HAND or _taken_away(use):
            continue
        first = seen.setdefault(flags[use.name].dest, use)
        if first.name != use.name and not _apart(first, use):
            yield Problem(
                use.location,
                f'the same setting as "{first.name}" in {first.location[0]}.args',
                "Keep one of the two names.",
            )


def _taken_away(use: _Use) -> bool:
    return use.parameter is None and use.values[0] is False


def _apart(first: _Use, second: _Use) -> bool:
    """Whether one exists only where the other has certain values: a flag and its ``no-`` form."""
    return any(
        one.parameter is not None and f"args.{other.name}" in one.parameter.when
        for one, other in ((first, second), (second, first))
    )


def _follows(use: _Use, prefix: str) -> bool:
    return use.parameter is not None and any(p.startswith(prefix) for p in use.parameter.when)


def _not_on_cpu(uses: list[_Use], flags: Mapping[str, Flag]) -> Iterator[Problem]:
    for use in uses:
        if use.name not in flags or use.location[0] in _BY_HAND:
            continue
        advice = _NOT_HERE_FIXED if use.parameter is None else _NOT_HERE
        given = [value for value in use.values if value is not False and value != UNSET]
        is_range = use.parameter is not None and use.parameter.choices is None
        if flags[use.name].dest.startswith("speculative_") and (given or is_range):
            if _follows(use, "args.speculative-"):
                continue  # it goes when its parent goes, which is told already
            yield Problem(
                use.location,
                "speculative decoding does not run without a GPU: SGLang's code for it loads "
                "sgl_kernel, which needs the CUDA driver library",
                advice,
            )
        elif flags[use.name].dest in ATTENTION:
            wrong = [str(value) for value in given if value != CPU_ATTENTION]
            if wrong:
                yield Problem(
                    use.location,
                    f"without a GPU only {CPU_ATTENTION} runs, not {', '.join(wrong)}",
                    advice,
                )
