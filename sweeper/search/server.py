"""The server of one trial: what it is started with, and how its start is followed."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from sweeper.engines.sglang.launch import launch, without_ray
from sweeper.engines.sglang.read_back import read_back
from sweeper.engines.sglang.stages import LogFollower
from sweeper.records.events import (
    Failure,
    ReadBack,
    ServerLaunched,
    ServerReady,
    StageReached,
)
from sweeper.records.log import EventLog
from sweeper.records.masking import mask_command, mask_mapping
from sweeper.search.plan import Plan
from sweeper.servers import process
from sweeper.servers.ports import HOST, free_ports
from sweeper.servers.readiness import StartError, wait_until_ready
from sweeper.spec.candidate import Candidate

_TAIL = 30


@dataclass
class RunningServer:
    """A server that was launched.

    Args:
        process: it, and everything that it started.
        url: where it answers.
        served_name: the model name that no other server has.
        trial: the trial's number.
        env_names: the variables that the space and the engine section set.
        give_up_after: seconds for the start.
    """

    process: process.ServerProcess
    url: str
    served_name: str
    trial: int
    env_names: frozenset[str]
    give_up_after: float
    stage: str = "launched"

    async def until_ready(self, log: EventLog) -> Failure | None:
        """Wait for a real completion and read back what runs; the failure where there is none."""
        begin = time.monotonic()
        follower = asyncio.ensure_future(self._follow(log))
        try:
            await wait_until_ready(
                self.process,
                self.url,
                served_name=self.served_name,
                give_up_after=self.give_up_after,
            )
        except StartError as error:
            kind = "start_timeout" if self.process.exit_status is None else "start_failed"
            return self.failure(kind, str(error))
        finally:
            follower.cancel()
        log.append(ServerReady(trial=self.trial, start_seconds=time.monotonic() - begin))
        self.stage = "serving"
        try:
            facts = await read_back(self.url, self.process.tag, names=self.env_names)
        except (httpx.HTTPError, ValueError) as error:
            return self.failure("read_back_failed", f"/server_info: {type(error).__name__}")
        log.append(
            ReadBack(trial=self.trial, effective=facts.effective, scheduler_env=facts.scheduler_env)
        )
        return None

    def failure(self, kind: str, what: str) -> Failure:
        """A failure with the end of the log; a server that is dead is the better explanation."""
        status = self.process.exit_status
        if status is not None and kind != "start_failed":
            kind, what = "server_died", f"the server ended with status {status}; {what}"
        return Failure(kind=kind, what=what, stage=self.stage, tail=self.process.tail(_TAIL))

    async def _follow(self, log: EventLog) -> None:
        reader = LogFollower(self.process.log)
        while True:
            if stage := reader.new_stage():
                self.stage = stage
                log.append(StageReached(trial=self.trial, stage=stage))
            await asyncio.sleep(0.5)


def start_server(
    plan: Plan,
    trial: int,
    candidate: Candidate,
    *,
    worker_env: Mapping[str, str],
    gpus: list[str],
) -> RunningServer:
    """Launch the candidate's server and record how. Returns at once.

    Args:
        plan: of the sweep.
        trial: the trial's number.
        candidate: its switches.
        worker_env: the environment of the worker, with what Ray put there.
        gpus: the GPUs that Ray gave to the trial.
    """
    folder = plan.folder.trial(trial)
    folder.mkdir(parents=True, exist_ok=True)
    port, nccl_port = free_ports(2)
    name = f"sweeper-{trial:04d}-{uuid.uuid4().hex[:8]}"
    env = {**{k: str(v) for k, v in plan.space.engine.env.items()}, **candidate.env()}
    if plan.device == "cuda":
        env["CUDA_VISIBLE_DEVICES"] = worker_env.get("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    what = launch(
        python=plan.python,
        model=plan.model.path,
        port=port,
        served_name=name,
        args={**plan.engine_args, "nccl-port": nccl_port, **candidate.args()},
        env=env,
        inherited=without_ray(worker_env, plan.shell),
        device=plan.device,
    )
    log_file = folder / "server.log"
    server = process.launch(what.command, what.env, tag=name, log=log_file)
    EventLog(plan.folder.log).append(
        ServerLaunched(
            trial=trial,
            pid=server.popen.pid,
            tag=name,
            port=port,
            command=mask_command(what.command),
            env=mask_mapping(what.added),
            gpus=gpus,
            log=str(log_file.relative_to(plan.folder.path)),
        )
    )
    give_up_after = plan.space.engine.start.give_up_after
    url = f"http://{HOST}:{port}"
    return RunningServer(server, url, name, trial, frozenset(env), give_up_after)
