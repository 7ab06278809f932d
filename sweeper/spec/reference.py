"""The reference page and the JSON Schema for editors, both made from the schema.

``python -m sweeper.spec.reference`` writes them into the checkout that this
module belongs to; a test fails while the files there are older than the schema.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sweeper.spec.parameters import Condition
from sweeper.spec.rules import LEVEL_METRICS, TRIAL_METRICS
from sweeper.spec.schema import SpaceFile
from sweeper.spec.values import UNSET, Duration, Scalar

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs/reference.md")
SCHEMA = Path("search_spaces/schema.json")

_INTRO = f"""\
# The search-space file

Made from the schema by `python -m sweeper.spec.reference`; do not edit it by hand.

A search space is one YAML file. `python -m sweeper check FILE` reads it and shows every problem with its line.
An editor does the same while you type if the file starts with this line and `schema.json` lies beside it:

```yaml
# yaml-language-server: $schema=schema.json
```

- *One value* is text, a number, true or false.
- A *duration* is a number of seconds, or a number with `s`, `m` or `h`: `90`, `"90s"`, `"15m"`, `"12h"`.
- `{UNSET}` as a choice leaves the switch alone: the engine, or NCCL, then takes its own default.
- A *section* is a mapping with fields of its own, described further down under its place in the file.
  `NAME` stands for the name of a variable or flag, `[]` for each item of a list.
- A *condition* is a mapping of names to a value or a list of values. All of its lines must hold.
"""

# Each is a file once a name and a model, and where needed a space, are put before it.
EXAMPLES = {
    "Choices, the short form": """\
space:
  args:
    schedule-policy: [fcfs, lpm]
""",
    "A range of whole numbers on a logarithmic scale": """\
space:
  args:
    chunked-prefill-size:
      int: {low: 512, high: 16384, log: true}
""",
    "Leaving a switch alone": """\
space:
  env:
    # "unset" does not set the variable: NCCL decides. That is not the same as any value.
    NCCL_PROTO: [unset, LL, Simple]
""",
    "A parameter that depends on another one": """\
space:
  args:
    attention-backend: [unset, triton]
    triton-attention-num-kv-splits:
      choices: [unset, 16]
      when: {args.attention-backend: triton, device: cuda}
      note: Read by the triton backend only.
""",
    "A combination that is never tried": """\
space:
  args:
    page-size: [unset, 64]
    chunked-prefill-size: [2048, 2080]
  forbid:
    - combination: {args.page-size: 64, args.chunked-prefill-size: 2080}
      because: The chunk must be a multiple of the page.
""",
    "Other values on a machine without a GPU": """\
without_gpu:
  workload: {input_tokens: 64, output_tokens: 32, concurrency: [1, 4], requests_per_stream: 2}
  search: {trials: 6}
""",
}

# What the schema's own validators check, in words that an editor understands.
ONE_OF = {"Parameter": ("choices", "int", "float"), "Constraint": ("at_most", "at_least")}

METRICS = {
    "single_stream": "Output tokens per second at concurrency 1. Higher is better.",
    "peak": "The highest output tokens per second of all load levels. Higher is better.",
    "output_throughput": "Output tokens of all requests, as the server counted them, divided by the time from "
    "the first send to the last end. Tokens per second; higher is better.",
    "request_throughput": "Answered requests divided by the same time. Requests per second; higher is better.",
    "accept_length": "Tokens for each verification step of a speculative server, mean over the level's requests; "
    "1.00 is a drafter of which nothing is accepted. Missing without speculation.",
    "ttft": "Time to first token: from sending a request to its first token.",
    "tpot": "Time per output token: what is left of the request after its first chunk, divided by the tokens "
    "that came after that chunk. One value for each request.",
    "itl": "Inter-token latency: the time between two chunks divided by the tokens that the later one brought, "
    "once for each of these tokens. A speculative server sends several tokens in a chunk, so gaps between "
    "chunks alone would make it look slow.",
    "e2e": "From sending a request to its end.",
}


def page() -> str:
    """The reference page, in Markdown."""
    parts = [_INTRO]
    for model, paths in _sections(SpaceFile).items():
        title = ", ".join(f"`{path}`" for path in paths) or "Fields at the top"
        parts += [f"## {title}", _text(model)]
        if names := ONE_OF.get(model.__name__):
            parts.append(
                "Exactly one of these must be there: " + ", ".join(f"`{n}`" for n in names) + "."
            )
        parts.append(_table(model))
    parts.append("## Examples")
    for heading, example in EXAMPLES.items():
        parts += [f"### {heading}", f"```yaml\n{example}```"]
    parts += ["## Metrics", _metrics()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def json_schema() -> dict[str, Any]:
    """The schema for editors; what the file may say in short is in it, too.

    It knows fields and kinds of values. Rules between fields are left to
    :mod:`sweeper.spec.rules`, which can explain them.
    """
    schema = SpaceFile.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    for name, short in (("Sampler", "name"), ("Pruner", "name"), ("Parameter", "choices")):
        # The first kind of ``choices`` is the list; the other one is null.
        field = parts[name]["properties"][short]
        plain = {key: field[key] for key in ("type", "enum") if key in field}
        parts[name] = {"anyOf": [plain or {**field["anyOf"][0], "minItems": 1}, parts[name]]}
    scalar = parts["Baseline"]["properties"]["env"]["additionalProperties"]
    wanted = {"anyOf": [scalar, {"type": "array", "items": scalar, "minItems": 1}]}
    parameter = parts["Parameter"]["anyOf"][1]
    parameter["properties"]["when"]["additionalProperties"] = wanted
    parts["Forbidden"]["properties"]["combination"]["additionalProperties"] = wanted
    parts["Forbidden"]["properties"]["combination"]["minProperties"] = 1
    for part, name in ((parameter, "Parameter"), (parts["Constraint"], "Constraint")):
        part["oneOf"] = [{"required": [field]} for field in ONE_OF[name]]
    parts["SpaceSection"]["anyOf"] = [{"required": [side]} for side in ("env", "args")]
    names = rf"^({'|'.join(TRIAL_METRICS)}|({'|'.join(LEVEL_METRICS)})@[0-9]+)$"
    for name in ("Objective", "Constraint"):
        parts[name]["properties"]["metric"]["pattern"] = names
    overrides = schema["properties"]["without_gpu"]
    fields = overrides.pop("propertyNames")["enum"]
    overrides["properties"] = {name: schema["properties"][name] for name in fields}
    overrides["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The JSON Schema as it stands in its file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False).replace("``", "`") + "\n"


def main(root: Path = ROOT) -> None:
    """Write both files under ``root``."""
    for path, text in ((PAGE, page()), (SCHEMA, schema_text())):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def _sections(
    model: type[BaseModel], path: str = "", found: dict[type[BaseModel], list[str]] | None = None
) -> dict[type[BaseModel], list[str]]:
    """Every model of the file with the places where it stands, in reading order."""
    found = {} if found is None else found
    found.setdefault(model, []).extend([path] if path else [])
    for name, _, hint in _fields(model):
        for inner, suffix in _models_in(hint):
            _sections(inner, f"{path}.{name}{suffix}".lstrip("."), found)
    return found


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo, Any]]:
    hints = typing.get_type_hints(model, include_extras=True)
    return [(field.alias or name, field, hints[name]) for name, field in model.model_fields.items()]


def _models_in(hint: Any) -> list[tuple[type[BaseModel], str]]:
    """The models inside a type, each with how its place is written."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [(hint, "")]
    suffix = {dict: ".NAME", list: "[]"}.get(typing.get_origin(hint), "")
    return [
        (model, suffix + rest) for part in typing.get_args(hint) for model, rest in _models_in(part)
    ]


def _table(model: type[BaseModel]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field, hint in _fields(model):
        cells = (f"`{name}`", _words(hint) + _limits(field), _default(field, hint), _meaning(field))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _words(hint: Any) -> str:
    """A type in plain words."""
    plain = {str: "text", bool: "true or false", int: "whole number", float: "number"}
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    # A scalar is Any to the type checker, so it must be told apart from Any first.
    for known, words in ((Duration, "duration"), (Scalar, "one value"), (Condition, "condition")):
        if hint == known:
            return words
    if hint is Any:
        return "anything"
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is list:
        return f"list of: {_words(arguments[0])}"
    if origin is dict and typing.get_origin(arguments[0]) is Literal:
        return f"mapping with {_words(arguments[0]).replace(' or ', ', ')}"
    if origin is dict:
        return f"mapping of names to: {_words(arguments[1])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(part) for part in arguments if part is not type(None))
    return "section"


def _limits(field: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = [
        f"{word} {getattr(limit, key):,}"
        for limit in field.metadata
        for key, word in words.items()
        if getattr(limit, key, None) is not None
    ]
    return f", {', '.join(found)}" if found else ""


def _default(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, list) and isinstance(value[0], BaseModel):
        value = [item.model_dump(exclude_defaults=True) for item in value]
    if hint == Duration:
        return f"`{value:g}` s"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _meaning(field: FieldInfo) -> str:
    assert field.description, "a field without a description cannot be explained"
    return field.description


def _text(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").replace("``", "`")


def _metrics() -> str:
    stats = list(dict.fromkeys(n.split("_")[1] for n in LEVEL_METRICS if n.endswith("_ms")))
    timed = list(dict.fromkeys(n.split("_")[0] for n in LEVEL_METRICS if n.endswith("_ms")))
    plain = [name for name in LEVEL_METRICS if not name.endswith("_ms")]
    rows = ["| metric | meaning |", "|---|---|"]
    rows += [f"| `{name}` | {METRICS[name]} |" for name in TRIAL_METRICS]
    rows += [f"| `{name}@LEVEL` | {METRICS[name]} |" for name in plain]
    rows += [f"| `{name}_STAT_ms@LEVEL` | {METRICS[name]} |" for name in timed]
    return f"""\
What `objectives` and `constraints` can name. Only requests that were answered in full are counted.

{chr(10).join(rows)}

`LEVEL` is one of the workload's concurrencies. `STAT` is one of {", ".join(f"`{s}`" for s in stats)}.
These four are in milliseconds and better when lower, so an objective needs `goal: minimize`.
For example: `ttft_p95_ms@32`."""


if __name__ == "__main__":
    main()
