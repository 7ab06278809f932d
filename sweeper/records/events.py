"""The events of a sweep, one line each in ``trials.jsonl``.

The log is the truth: everything that is shown or decided later is computed
from it. So an event says what was seen, with units in the name, and a number
that was not measured is absent, never zero.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

FORMAT = 1


def _now() -> datetime:
    return datetime.now(UTC)


class Event(BaseModel):
    """What every event has. Unknown fields of a newer version are kept out, not refused."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    time: datetime = Field(default_factory=_now)


class SweepStarted(Event):
    """The sweep began; everything that is the same for all trials."""

    event: Literal["sweep_started"] = "sweep_started"
    format: int = FORMAT
    sweep: str
    trials: int
    model: str
    model_description: str
    engine: str
    engine_version: str | None = None
    emulated: bool = False
    device: str
    levels: list[int]
    objectives: list[dict[str, Any]]
    constraints: list[dict[str, Any]] = []
    environment: dict[str, Any] = {}
    time_budget: float | None = None


class TrialStarted(Event):
    """A trial was proposed and handed to a worker."""

    event: Literal["trial_started"] = "trial_started"
    trial: int
    baseline: bool = False
    values: dict[str, Any]
    label: str


class ServerLaunched(Event):
    """A server process was started. Secrets in command and env are masked.

    ``worker`` is the process that started it and measures it.
    """

    event: Literal["server_launched"] = "server_launched"
    trial: int
    pid: int
    tag: str
    worker: int | None = None
    port: int
    command: list[str]
    env: dict[str, str]
    gpus: list[str] = []
    log: str


class StageReached(Event):
    """The start of a server reached another stage."""

    event: Literal["stage"] = "stage"
    trial: int
    stage: str


class StartProgress(Event):
    """How far the stage has come that the start is in. Not every step of it is told.

    ``share`` is the part of the stage's time that is over, absent where the steps do not
    tell it (the first of the graphs takes most of the time); ``draft`` says that it is the
    draft model's pass.
    """

    event: Literal["start_progress"] = "start_progress"
    trial: int
    stage: str
    done: int
    total: int
    share: float | None = None
    draft: bool = False


class ServerReady(Event):
    """A real completion came back from the server that we started.

    ``stages`` says how many seconds each stage of the start took, in order.
    """

    event: Literal["server_ready"] = "server_ready"
    trial: int
    start_seconds: float
    stages: dict[str, float] = {}


class LevelMeasured(Event):
    """One load level. Metrics by name, units in the names; see docs/reference."""

    event: Literal["level"] = "level"
    trial: int
    concurrency: int
    requests: int
    failed_requests: int
    seconds: float
    warmup_seconds: float
    metrics: dict[str, float]


class ReadBack(Event):
    """What the server says it really runs with."""

    event: Literal["read_back"] = "read_back"
    trial: int
    effective: dict[str, Any]
    scheduler_env: dict[str, str] = {}


class ServerStopped(Event):
    """The server is gone. ``leftovers`` are processes that had to be killed one by one.

    ``problems`` are what is still there although it should not be: a port, GPU memory,
    shared memory. None of the two checks is a value that was not, or could not be, looked at.
    """

    event: Literal["server_stopped"] = "server_stopped"
    trial: int
    stop_seconds: float
    exit_status: int | None
    leftovers: int = 0
    port_free: bool | None = None
    gpu_memory_back: bool | None = None
    problems: list[str] = []


class Failure(BaseModel):
    """Why a trial has no result.

    ``kind`` is one of the classes of docs/failures.md, ``evidence`` the lines of the log
    that decided, ``retries`` how often it made sense to try again.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    kind: str
    what: str
    blame: Literal["configuration", "machine", "unknown"] = "unknown"
    stage: str | None = None
    evidence: list[str] = []
    advice: str = ""
    retries: int = 0
    tail: list[str] = []


class TrialRetried(Event):
    """The server failed, by the machine's fault as it seems, and is started again."""

    event: Literal["trial_retried"] = "trial_retried"
    trial: int
    attempt: int
    failure: Failure


class TrialEnded(Event):
    """The final word on a trial; written in one place, once."""

    event: Literal["trial_ended"] = "trial_ended"
    trial: int
    state: Literal["complete", "pruned", "failed", "infeasible", "interrupted"]
    score: float | None = None
    values: dict[str, float] = {}
    failure: Failure | None = None
    broken_constraints: list[str] = []


class SweepEnded(Event):
    """The sweep ended in an orderly way."""

    event: Literal["sweep_ended"] = "sweep_ended"
    reason: str


AnyEvent = Annotated[
    SweepStarted
    | TrialStarted
    | ServerLaunched
    | StageReached
    | StartProgress
    | ServerReady
    | LevelMeasured
    | ReadBack
    | ServerStopped
    | TrialRetried
    | TrialEnded
    | SweepEnded,
    Field(discriminator="event"),
]
ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
