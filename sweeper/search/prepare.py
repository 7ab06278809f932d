"""From a file to a plan: everything that is settled before the first trial starts."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sweeper.engines.emulated import check as emulated_check
from sweeper.engines.sglang import check as sglang_check
from sweeper.engines.sglang.launch import (
    EMULATED,
    TENSOR_PARALLEL,
    gpus_needed,
    tensor_parallel_auto,
)
from sweeper.engines.sglang.parser import InstalledParser, installed_parser
from sweeper.errors import MachineError
from sweeper.machine.facts import environment
from sweeper.machine.gpus import Gpu, gpus
from sweeper.models.resolver import EMBEDDED, ResolvedModel, check_name, resolve
from sweeper.records.events import SweepStarted
from sweeper.records.files import write_atomically
from sweeper.records.folder import SweepFolder, new_folder
from sweeper.records.masking import looks_secret, mask_value
from sweeper.search.gpu_gate import users_of, wait_until_free
from sweeper.search.plan import Plan
from sweeper.search.rehearsal import rehearse
from sweeper.spec.load import LoadedSpace, load_space, merged, with_engine
from sweeper.spec.problems import Problem
from sweeper.spec.schema import SpaceFile


@dataclass(frozen=True)
class Overrides:
    """What the command line says beside the file. None leaves the file's word."""

    model: str | None = None
    engine: str | None = None
    trials: int | None = None
    time_budget: float | None = None


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start.

    Args:
        plan: for the workers.
        gpus: of this machine; empty without one.
        gpus_per_trial: whole GPUs that each server gets.
        started: the first event of the log.
    """

    plan: Plan
    gpus: tuple[Gpu, ...]
    gpus_per_trial: int
    started: SweepStarted


logger = logging.getLogger(__name__)

# The node that the emulated engine pretends to be.
_EMULATED_GPUS = 8


def device_here(path: Path, overrides: Overrides, found: Sequence[Gpu]) -> str:
    """The device that the file is read for: what is here, or what the emulated engine pretends.

    Raises:
        InputError: the file is wrong.
    """
    if found:
        return "cuda"
    loaded = load_space(path, device="cuda", model=overrides.model, engine=overrides.engine)
    return "cuda" if loaded.space.engine.kind == "emulated" else "cpu"


def checked(
    path: Path, device: str, overrides: Overrides
) -> tuple[LoadedSpace, InstalledParser | None]:
    """Read the file and hold it against the engine that is installed. Starts nothing.

    The emulated engine needs none: without one, flags are not checked, and there is no parser.

    Raises:
        InputError: everything that is wrong with the file, with lines.
        MachineError: there is no engine to ask.
    """
    loaded = load_space(path, device=device, model=overrides.model, engine=overrides.engine)
    space = loaded.space
    loaded.raise_for([*_secrets_in_the_open(space), *_python(space), *rehearse(space, device)])
    if space.engine.kind == "emulated":
        loaded.raise_for(list(emulated_check.check(space)))
        try:
            parser = installed_parser(engine_python(space))
        except MachineError:
            return loaded, None
    else:
        check_name(space.model)
        parser = installed_parser(engine_python(space))
    loaded.raise_for(sglang_check.check(space, parser, device))
    return loaded, parser


def prepare(path: Path, *, results: Path, overrides: Overrides, command: list[str]) -> Prepared:
    """Settle everything, and make the results folder with its first record.

    Raises:
        InputError: the file or an argument is wrong; nothing was started.
        MachineError: the machine lacks something.
    """
    found = gpus()
    device = device_here(path, overrides, found)
    loaded, parser = checked(path, device, overrides)
    space = _overridden(loaded.space, overrides)
    emulated = space.engine.kind == "emulated"
    if emulated:
        found, python, model = [], Path(sys.executable), _no_model(space.model)
    else:
        python = engine_python(space)
        model = resolve(space.model, python=python)
    if found:
        wait_until_free(lambda: users_of(None), space.gpus, say=logger.info)
    if space.engine.args.get("load-format") == "dummy":
        model = replace(model, real_weights=False)
    args = _resolved_args(space, model, _EMULATED_GPUS if emulated else len(found))
    per_trial = _gpus_per_trial(space, args, found)
    versions = parser.versions if parser else {}
    shell = frozenset(_shell(space))
    folder = new_folder(results, space.name, datetime.now().astimezone())
    _write_space(folder, loaded, device, overrides)
    started = SweepStarted(
        sweep=folder.path.name,
        trials=space.search.trials,
        model=model.name,
        model_description=model.description,
        engine=space.engine.kind,
        engine_version=versions.get("sglang"),
        emulated=emulated,
        device=f"{_EMULATED_GPUS} emulated GPUs" if emulated else device,
        levels=space.workload.concurrency,
        objectives=[o.model_dump() for o in space.objectives],
        constraints=[c.model_dump() for c in space.constraints],
        environment={
            **environment(versions),
            "command": command,
            "seed": space.search.seed,
            "workload": space.workload.model_dump(),
        },
        time_budget=space.search.time_budget,
    )
    plan = Plan(folder, space, device, python, model, args, shell)
    if emulated:
        own = {"EMULATED_PARSER": str(parser.file)} if parser and parser.file else {}
        # What the shell says of it counts, and must be in the record.
        own |= {name: v for name, v in os.environ.items() if name.startswith("EMULATED_")}
        plan = replace(plan, module=EMULATED, own_env=own)
    return Prepared(plan, tuple(found), per_trial, started)


def _secrets_in_the_open(space: SpaceFile) -> Iterator[Problem]:
    # Optuna keeps what it proposes in its journal, and a winner without its value is no
    # winner. A server prints its flags into its log.
    places = [("space", "env"), ("space", "args"), ("engine", "args")]
    for section, side in places:
        for name in getattr(getattr(space, section), side):
            if looks_secret(name):
                yield Problem(
                    (section, side, name),
                    "its name looks like a secret, and secrets are never written to records or logs",
                    "Servers of a sweep listen on this machine only and need no key."
                    if side == "args"
                    else "Set it in your shell, or under engine.env.",
                )


def _python(space: SpaceFile) -> Iterator[Problem]:
    named = space.engine.python
    if named is not None and shutil.which(os.path.expanduser(named)) is None:  # noqa: PTH111
        yield Problem(
            ("engine", "python"),
            f"there is no program {named} that can be run",
            "Give the full path of the Python that has SGLang installed.",
        )


def _no_model(name: str) -> ResolvedModel:
    words = f"{name}, which is not loaded: the engine is emulated"
    return ResolvedModel(name, name, words, None, None, None, real_weights=False)


def engine_python(space: SpaceFile) -> Path:
    """The interpreter that has the engine; by default the one that runs the sweeper."""
    if space.engine.python is None:
        return Path(sys.executable)
    named = os.path.expanduser(space.engine.python)  # noqa: PTH111  # "~" of an unknown user stays
    return Path(shutil.which(named) or named).absolute()


def _shell(space: SpaceFile) -> Mapping[str, str]:
    """The user's environment, which servers inherit."""
    # A built-in model is complete on the disk; a look at the hub would only cost time.
    if space.model in EMBEDDED:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return os.environ


def _overridden(space: SpaceFile, overrides: Overrides) -> SpaceFile:
    changes: dict[str, Any] = {}
    if overrides.trials is not None:
        changes["trials"] = overrides.trials
    if overrides.time_budget is not None:
        changes["time_budget"] = overrides.time_budget
    return space.model_copy(update={"search": space.search.model_copy(update=changes)})


def _resolved_args(space: SpaceFile, model: ResolvedModel, gpu_count: int) -> dict[str, Any]:
    args = dict(space.engine.args)
    for name in TENSOR_PARALLEL:
        if args.get(name) == "auto":
            args[name] = tensor_parallel_auto(
                gpu_count // space.search.parallel, model.attention_heads, model.kv_heads
            )
    return args


def _gpus_per_trial(space: SpaceFile, args: Mapping[str, Any], found: list[Gpu]) -> int:
    """As many as the largest candidate needs, so that every trial has the same node to itself.

    Raises:
        MachineError: more than there are.
    """
    if not found:
        return 0
    largest = dict(args)
    for name, parameter in space.space.args.items():
        if name in {*TENSOR_PARALLEL, "pp-size", "pipeline-parallel-size", "dp-size"}:
            numbers = [int(c) for c in parameter.choices or [] if str(c).isdigit()]
            high = parameter.int_range.high if parameter.int_range else 1
            largest[name] = max([*numbers, high])
    needed = gpus_needed(largest)
    if needed * space.search.parallel > len(found):
        raise MachineError(
            f"{space.search.parallel} trial(s) of {needed} GPU(s) are wanted side by side, "
            f"and this machine shows {len(found)}",
            where="engine.args",
            advice='Write "tensor-parallel-size: auto", or lower search.parallel.',
        )
    return needed


def _write_space(
    folder: SweepFolder, loaded: LoadedSpace, device: str, overrides: Overrides
) -> None:
    """The file as it holds on this machine, secrets masked."""
    from ruamel.yaml import YAML

    data = merged(loaded.document.data, device)
    data.pop("without_gpu", None)
    search = dict(data.get("search") or {})
    if overrides.trials is not None:
        search["trials"] = overrides.trials
    if overrides.time_budget is not None:
        search["time_budget"] = overrides.time_budget
    if search:
        data["search"] = search
    if overrides.model is not None:
        data["model"] = overrides.model
    if overrides.engine is not None:
        data["engine"] = with_engine(data.get("engine"), overrides.engine)
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(mask_value(data), text)
    write_atomically(folder.space, f"# {loaded.document.path}, as run\n{text.getvalue()}")
