"""Starts the server of a trial, and records how."""

from __future__ import annotations

import functools
import os
import uuid
import zlib
from collections.abc import Callable, Mapping

from sweeper.engines.sglang.launch import EMULATED, launch, without_ray
from sweeper.machine.gpu_processes import memory_used
from sweeper.machine.kernel_events import kernel_moment
from sweeper.records.events import ServerLaunched
from sweeper.records.log import EventLog
from sweeper.records.masking import mask_command, mask_mapping, secret_values
from sweeper.search.plan import Plan
from sweeper.search.server import RunningServer
from sweeper.servers import process
from sweeper.servers.ports import DP_ATTENTION, HOST, reserve
from sweeper.spec.candidate import Candidate


def start_server(
    plan: Plan,
    trial: int,
    candidate: Candidate,
    *,
    worker_env: Mapping[str, str],
    gpus: list[str],
    attempt: int = 0,
) -> RunningServer:
    """Launch the candidate's server. Returns at once.

    Args:
        plan: of the sweep.
        trial: the trial's number.
        candidate: its switches.
        worker_env: the environment of the worker, with what Ray put there.
        gpus: the GPUs that Ray gave to the trial.
        attempt: how often this trial's server was started before.

    Raises:
        OSError: the program cannot be run, or no log can be written.
        MachineError: no ports are free.
    """
    folder = plan.folder.trial(trial)
    folder.mkdir(parents=True, exist_ok=True)
    args = {**plan.engine_args, **candidate.args()}
    ports = reserve(2, derived=DP_ATTENTION if args.get("enable-dp-attention") else ())
    name = f"sweeper-{trial:04d}-{uuid.uuid4().hex[:8]}"
    fixed = {k: str(v) for k, v in plan.space.engine.env.items()}
    own = dict(plan.own_env)
    if plan.module == EMULATED:
        # Two starts of one configuration differ, as they do on a real machine.
        own["EMULATED_SEED"] = str(zlib.crc32(f"{plan.space.search.seed}/{name}".encode()))
    env = {**own, **fixed, **candidate.env()}
    if plan.device == "cuda" and gpus:
        env["CUDA_VISIBLE_DEVICES"] = worker_env.get("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    what = launch(
        python=plan.python,
        model=plan.model.path,
        port=ports.ports[0],
        served_name=name,
        args={"nccl-port": ports.ports[1], **args},
        env=env,
        inherited=without_ray(worker_env, plan.shell),
        device=plan.device,
        module=plan.module,
    )
    log_file = folder / (f"server-{attempt}.log" if attempt else "server.log")
    moment = kernel_moment()
    server = process.launch(
        what.command,
        what.env,
        tag=name,
        log=log_file,
        ports=ports,
        gpu_memory=memory_on(plan, gpus),
    )
    EventLog(plan.folder.log).append(
        ServerLaunched(
            trial=trial,
            pid=server.popen.pid,
            tag=name,
            worker=os.getpid(),
            port=ports.ports[0],
            command=mask_command(what.command),
            env=mask_mapping(what.added),
            gpus=gpus,
            log=str(log_file.relative_to(plan.folder.path)),
        )
    )
    return RunningServer(
        server,
        f"http://{HOST}:{ports.ports[0]}",
        name,
        trial,
        frozenset(env),
        plan.space.engine.start,
        plan.space.workload.stall_after,
        moment,
        secret_values(what.env),
    )


def memory_on(plan: Plan, gpus: list[str]) -> Callable[[], tuple[int, ...]]:
    """What tells the bytes in use on the trial's GPUs; nothing without a real one."""
    if plan.device != "cuda" or plan.module == EMULATED or not gpus:
        return tuple
    return functools.partial(memory_used, gpus)
