"""What the command says before the first trial: what is real here, and where to look."""

from __future__ import annotations

from sweeper.doctor.leftovers import find_servers
from sweeper.report.words import EMULATED
from sweeper.search.prepare import Prepared
from sweeper.search.ray_run import Dashboard


def introduction(prepared: Prepared) -> list[str]:
    """Plain words about the engine, the model, the machine and the load."""
    plan, started = prepared.plan, prepared.started
    engine = f"SGLang {started.engine_version}"
    if started.emulated:
        real = [
            EMULATED,
            "it takes SGLang's flags and speaks as SGLang does, on no GPU and without a model",
        ]
    elif plan.device == "cuda":
        names = sorted({gpu.name or "unknown GPU" for gpu in prepared.gpus})
        real = [
            f"{engine} on {len(prepared.gpus)} x {', '.join(names)}; "
            f"each trial gets {prepared.gpus_per_trial}",
        ]
    else:
        real = [
            f"no GPU here, so this is a rehearsal: the real {engine} runs on the CPU, in PyTorch's "
            "own operators",
            "there is no NCCL on this machine: its variables reach the server and change nothing",
            "tokens and times are measured, not made up, and say nothing about a GPU",
        ]
    load, search = plan.space.workload, plan.space.search
    weights = " (real weights)" if plan.model.real_weights else " (random weights: speed only)"
    if started.emulated:
        weights = ""
    return [
        *real,
        f"model: {plan.model.description}{weights}",
        f"load: {load.input_tokens} tokens in, {load.output_tokens} out, concurrency "
        f"{', '.join(map(str, load.concurrency))}",
        f"search: the baseline and up to {search.trials} candidates, {search.sampler.name} sampler, "
        f"{search.pruner.name} pruner, seed {search.seed}",
        f"results: {plan.folder.path}",
        *_left_over(),
    ]


def _left_over() -> list[str]:
    left = [server for server in find_servers() if not server.running]
    if not left:
        return []
    processes = sum(len(server.processes) for server in left)
    return [
        f"{len(left)} servers of earlier sweeps left {processes} processes and their files: "
        "python -m sweeper doctor --clean"
    ]


def where_to_look(dashboard: Dashboard) -> list[str]:
    """The address of Ray's dashboard and how to get in."""
    if dashboard.url is None:
        return ["Ray dashboard: not available (Ray did not start one)"]
    # The token itself would end up in terminal logs; the path is enough.
    entry = f"; it asks for the token in {dashboard.token_file}" if dashboard.token_file else ""
    return [f"Ray dashboard: {dashboard.url}{entry}"]
