"""``/metrics``: names, labels and types as SGLang's, for what the emulated engine knows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from sweeper.engines.emulated.batching import Request
from sweeper.engines.emulated.scheduler import Scheduler

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200)
_ITL = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 1)


@dataclass
class Histogram:
    """Observations in buckets.

    Args:
        bounds: upper ends, rising.
    """

    bounds: tuple[float, ...]
    total: float = 0.0
    count: int = 0
    buckets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, ``times`` times."""
        self.buckets[bisect_left(self.bounds, value)] += times
        self.total += value * times
        self.count += times


class Metrics:
    """What is counted of requests beside what the batch counts itself."""

    def __init__(self) -> None:
        self.ttft = Histogram(_TTFT)
        self.e2e = Histogram(_E2E)
        self.itl = Histogram(_ITL)
        self.queue = Histogram(_TTFT)

    def ended(self, request: Request) -> None:
        """Count a request that was answered in full."""
        if request.first_token is None or request.ended is None or request.started is None:
            return
        self.ttft.observe(request.first_token - request.arrived)
        self.queue.observe(request.started - request.arrived)
        self.e2e.observe(request.ended - request.arrived)
        if later := request.output_tokens - 1:
            self.itl.observe((request.ended - request.first_token) / later, later)

    def text(self, scheduler: Scheduler, model: str) -> str:
        """The page.

        Args:
            scheduler: whose gauges are shown.
            model: the served model name.
        """
        name = model.replace("\\", "\\\\").replace('"', '\\"')
        rank = f'engine_type="unified",model_name="{name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        plain = f'engine_type="unified",model_name="{name}"'
        lines = [*_gauges(scheduler, rank), *_counters(scheduler, plain, rank)]
        for title, histogram in (
            ("time_to_first_token_seconds", self.ttft),
            ("e2e_request_latency_seconds", self.e2e),
            ("inter_token_latency_seconds", self.itl),
            ("queue_time_seconds", self.queue),
        ):
            lines += _histogram(f"sglang:{title}", histogram, plain)
        return "\n".join(lines) + "\n"


def _gauges(scheduler: Scheduler, labels: str) -> Iterator[str]:
    batch, tick = scheduler.batch, scheduler.tick
    drafting, kv = batch.behaviour.drafting, batch.behaviour.kv_tokens
    running = len(batch.running)
    length = tick.accept_length or 0.0
    proposed = max(1, drafting.draft_tokens - 1) if drafting else 1
    values = {
        "emulated": 1,
        "num_running_reqs": running,
        "num_queue_reqs": len(batch.waiting),
        "num_grammar_queue_reqs": 0,
        "num_paused_reqs": 0,
        "num_retracted_reqs": batch.totals.retracted,
        "num_used_tokens": batch.used_tokens,
        "token_usage": batch.used_tokens / kv,
        "full_token_usage": batch.used_tokens / kv,
        "kv_used_tokens": batch.used_tokens,
        "kv_available_tokens": kv - batch.used_tokens,
        "kv_evictable_tokens": 0,
        "decode_sum_seq_lens": batch.used_tokens,
        "max_total_num_tokens": kv,
        "gen_throughput": tick.gen_throughput if running else 0.0,
        "cache_hit_rate": 0.0,
        "utilization": running / batch.behaviour.max_running_requests,
        "new_token_ratio": batch.expected,
        "is_cuda_graph": float(batch.behaviour.cuda_graphs and running > 0),
        "spec_accept_length": length,
        "spec_accept_rate": max(0.0, length - 1) / proposed,
        "spec_num_steps": drafting.steps if drafting else 0,
        "spec_num_draft_tokens": drafting.draft_tokens if drafting else 0,
    }
    for name, value in values.items():
        yield f"# TYPE sglang:{name} gauge"
        yield f"sglang:{name}{{{labels}}} {float(value)}"


def _counters(scheduler: Scheduler, labels: str, rank: str) -> Iterator[str]:
    totals, graphs = scheduler.batch.totals, scheduler.batch.behaviour.cuda_graphs
    prefills = totals.passes - totals.decode_passes
    counters = {
        "prompt_tokens": {labels: totals.prompt_tokens},
        "generation_tokens": {labels: totals.generated_tokens},
        "cached_tokens": {labels: 0},
        "num_requests": {labels: totals.requests},
        "num_aborted_requests": {labels: totals.dropped},
        "num_retracted_requests": {labels: totals.retracted},
        "spec_verify_calls": {rank: totals.verifications},
        "cuda_graph_passes": {
            f'{rank},mode="decode_cuda_graph"': totals.decode_passes if graphs else 0,
            f'{rank},mode="decode_none"': 0 if graphs else totals.decode_passes,
            f'{rank},mode="prefill_none"': prefills,
        },
    }
    for name, series in counters.items():
        yield f"# TYPE sglang:{name}_total counter"
        for series_labels, value in series.items():
            yield f"sglang:{name}_total{{{series_labels}}} {float(value)}"


def _histogram(name: str, histogram: Histogram, labels: str) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    so_far = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.buckets, strict=True):
        so_far += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {float(so_far)}'
    yield f"{name}_sum{{{labels}}} {histogram.total}"
    yield f"{name}_count{{{labels}}} {float(histogram.count)}"
