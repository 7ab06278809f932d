"""What SGLang 0.5.23 writes while it starts, line by line with the moment of each. Pure.

One script for each process: the launcher up to its schedulers, each scheduler
(*rank*), and the launcher again once all of them are ready. The order and the
words are those of recorded starts on CPU and on an H200, memory figures are
made up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sweeper.engines.emulated.fault_kinds import Stage
from sweeper.engines.emulated.progress import blocks, shards

Kind = Literal["info", "warning", "raw"]

GPU_GB = 93.89
"""Free on each GPU before the start, in GiB."""
KV_BYTES = 70_272
"""For a token in the cache of an MLA model: 576 values in 61 layers, two bytes each."""


@dataclass(frozen=True)
class Line:
    """One piece of output.

    Args:
        at: virtual seconds after the launch.
        text: without timestamp and tag.
        kind: level of the logger, or ``raw`` for what goes around it.
    """

    at: float
    text: str
    kind: Kind = "info"


@dataclass(frozen=True)
class Times:
    """Virtual seconds of each stage, and in how many parts it shows progress."""

    arguments: float = 12.0
    distributed: float = 8.0
    weights: float = 313.0
    memory_pool: float = 2.0
    graphs: float = 25.0
    warmup: float = 6.0
    shards: float = 64
    weights_gb: float = 68.4

    @classmethod
    def of(cls, section: Mapping[str, float]) -> Times:
        """From the section ``start`` of a profile. What it lacks has its default."""
        return cls(**{name: value for name, value in section.items() if name in cls.names()})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What the section may hold."""
        return tuple(cls.__dataclass_fields__)

    def slower(self, factor: float) -> Times:
        """The same with weights that take ``factor`` times as long."""
        return replace(self, weights=self.weights * factor)


@dataclass(frozen=True)
class Facts:
    """What the lines name.

    Args:
        args: flags by their name in the parser, as the server resolved them.
        notes: what the engine says about what it changed.
        kv_tokens: tokens that fit into the cache.
        max_running_requests: effective.
        chunked_prefill_size: effective.
        context_length: of the model.
        draft: there is a draft model.
    """

    args: Mapping[str, Any]
    notes: Sequence[str]
    kv_tokens: int
    max_running_requests: int
    chunked_prefill_size: int
    context_length: int
    draft: bool = False


@dataclass(frozen=True)
class Script:
    """A whole start.

    Args:
        opening: of the launcher, up to the start of its schedulers.
        ranks: of each scheduler.
        stages: when each stage begins and ends, in virtual seconds.
    """

    opening: tuple[Line, ...]
    ranks: tuple[tuple[Line, ...], ...]
    stages: Mapping[Stage, tuple[float, float]]

    def moment(self, stage: Stage, share: float) -> float:
        """The virtual second in which a stage has got that far."""
        begin, end = self.stages[stage]
        return begin + share * (end - begin)


def rank_tags(args: Mapping[str, Any]) -> list[str]:
    """The tag of each rank's lines, with the space in front, in SGLang's order of parts.

    A part is named only where there is more than one; one rank has no tag at all.
    """

    def size(name: str) -> int:
        return int(args.get(name) or 1)

    replicas = size("dp_size")
    attention = bool(args.get("enable_dp_attention"))
    # With attention in data parallel, the replicas share the ranks of the tensor parallel group.
    per_replica = size("tp_size") // replicas if attention and replicas > 1 else 0
    tags = []
    for replica in range(1 if attention else replicas):
        for stage in range(size("pp_size")):
            for rank in range(size("tp_size")):
                shown = rank // per_replica if per_replica else replica
                parts = [
                    f" DP{shown}" if replicas > 1 else "",
                    f" PP{stage}" if size("pp_size") > 1 else "",
                    f" TP{rank}" if size("tp_size") > 1 else "",
                    f" EP{rank}" if size("ep_size") > 1 else "",
                ]
                tags.append("".join(parts))
    return tags


def script(times: Times, facts: Facts) -> Script:
    """Write the start of one server."""
    stages = _stages(times, facts)
    count = len(rank_tags(facts.args))
    return Script(
        opening=tuple(_opening(times, facts)),
        ranks=tuple(tuple(_rank(rank, times, facts, stages)) for rank in range(count)),
        stages=stages,
    )


def _stages(times: Times, facts: Facts) -> dict[Stage, tuple[float, float]]:
    graphs = 0.0 if facts.args.get("disable_cuda_graph") else times.graphs
    lengths: tuple[tuple[Stage, float], ...] = (
        ("arguments", times.arguments),
        ("distributed", times.distributed),
        ("weights", times.weights),
        ("memory_pool", times.memory_pool),
        ("graph_capture", graphs),
        ("http", 0.5),
        ("warm_up", times.warmup),
        ("ready", 0.0),
    )
    stages: dict[Stage, tuple[float, float]] = {}
    now = 0.0
    for stage, length in lengths:
        stages[stage] = (now, now + length)
        now += length
    return stages


FORK_AT = 0.6
"""Share of the first stage after which the launcher starts its schedulers; the rest are their imports."""


def _opening(times: Times, facts: Facts) -> Iterator[Line]:
    warning = (
        "/opt/sglang/lib/python3.12/site-packages/sglang/launch_server.py:71: UserWarning: "
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the "
        "recommended entrypoint.\n  Example: sglang serve --model-path <model> [options]\n"
        "  warnings.warn(\n"
    )
    yield Line(0.0, warning, "raw")
    told = FORK_AT * times.arguments
    for note in facts.notes:
        yield Line(0.9 * told, note, "warning")
    yield Line(told, "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit", "warning")
    yield Line(told, f"server_args={dict(facts.args)!r}")


def _rank(
    rank: int, times: Times, facts: Facts, stages: Mapping[Stage, tuple[float, float]]
) -> Iterator[Line]:
    late = 0.02 * rank  # ranks are never quite at the same place
    begin, end = stages["distributed"]
    yield Line(begin + late, "Init parallel begin.")
    yield Line(begin + late + 0.3, "sglang is using nccl==2.28.9")
    elapsed = 0.9 * (end - begin)
    yield Line(end - 0.1, f"Init parallel ends. elapsed={elapsed:.2f} s")
    yield Line(end - 0.05, "Memory baseline taken. mem usage=0.59 GB")

    free = GPU_GB
    begin, last = stages["weights"]
    end = begin + (0.97 if facts.draft else 1.0) * (last - begin)
    passes = [("KimiK25ForConditionalGeneration", begin, end, times.weights_gb)]
    if facts.draft:
        passes.append(("LlamaForCausalLMEagle3", end, last, 0.9))
    for number, (name, begin, end, size) in enumerate(passes):
        yield Line(begin + late, f"Load weight begin. avail mem={free:.2f} GB")
        if rank == 0 and facts.args.get("load_format") != "dummy":
            total = max(1, int(times.shards)) if number == 0 else 1
            for share, text in shards(total, end - begin):
                yield Line(begin + share * (end - begin), text, "raw")
        free = max(1.0, free - size)
        seconds = end - begin - late
        yield Line(
            end,
            f"Load weight end. elapsed={seconds:.2f} s, type={name}, avail mem={free:.2f} GB, "
            f"mem usage={size:.2f} GB.",
        )

    begin, end = stages["memory_pool"]
    pool = facts.kv_tokens * KV_BYTES / 2**30
    for size in (pool, pool / 61) if facts.draft else (pool,):
        free = max(1.0, free - size)
        yield Line(
            (begin + end) / 2,
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {facts.kv_tokens}, "
            f"KV size: {size:.2f} GB",
        )
        yield Line(end, f"Memory pool end. avail mem={free:.2f} GB")
    free = yield from _graphs(rank, facts, stages["graph_capture"], free)

    if rank == 0:
        end = stages["graph_capture"][1]
        yield Line(
            end,
            f"max_total_num_tokens={facts.kv_tokens}, "
            f"chunked_prefill_size={facts.chunked_prefill_size}, max_prefill_tokens=16384, "
            f"max_running_requests={facts.max_running_requests}, "
            f"context_len={facts.context_length}, available_gpu_mem={free:.2f} GB",
        )
    yield Line(
        stages["graph_capture"][1],
        "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
        "hybrid_ssm=False hicache_attached=False",
    )


def _graphs(
    rank: int, facts: Facts, stage: tuple[float, float], free: float
) -> Generator[Line, None, float]:
    """The capture of graphs; its value is the memory that is left."""
    yield Line(
        stage[0],
        "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
        "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules).",
    )
    if facts.args.get("disable_cuda_graph"):
        return free
    speculative = bool(facts.args.get("speculative_algorithm"))
    names = ["target verify" if speculative else "target decode"]
    if facts.draft:
        names += ["draft decode", "draft extend"]
    sizes = capture_sizes(facts.args, facts.max_running_requests, speculative)
    length = (stage[1] - stage[0]) / len(names)
    guessed = int(facts.args.get("speculative_num_draft_tokens") or 4)
    for number, name in enumerate(names):
        begin, end = stage[0] + number * length, stage[0] + (number + 1) * length
        tokens = guessed if speculative and name != "draft decode" else 1
        yield Line(
            begin,
            f"Capture {name} CUDA graph begin. backend=full, num_tokens_per_req={tokens}, "
            f"bs={sizes}, avail mem={free:.2f} GB",
        )
        if rank == 0:
            for share, text in blocks(sizes, length, free):
                yield Line(begin + share * length, text, "raw")
        free = max(1.0, free - 0.15)
        yield Line(
            end,
            f"Capture {name} CUDA graph end. elapsed={length:.2f} s, mem usage=0.15 GB, "
            f"avail mem={free:.2f} GB.",
        )
    return free


def capture_sizes(args: Mapping[str, Any], most_running: int, speculative: bool) -> list[int]:
    """The batch sizes that graphs are captured for, ascending, as SGLang chooses them."""
    given = args.get("cuda_graph_bs_decode")
    if given:
        return sorted({int(size) for size in (given if isinstance(given, list) else [given])})
    fine = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4)]
    coarse = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16)]
    most = int(args.get("cuda_graph_max_bs_decode") or 256)
    most = min(most, most_running)
    return [size for size in (fine if speculative else coarse) if size <= most] or [most]
