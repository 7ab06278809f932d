"""From the times of single requests to the numbers of a load level.

Definitions, as the field uses them; all times in the records are milliseconds:

- TTFT: from sending a request to its first token.
- E2E: from sending a request to its end.
- TPOT: (E2E - TTFT) / (output tokens after the first chunk), one value a request.
- ITL: time between chunks divided by the tokens that the later chunk brought,
  once for each of these tokens, so that a speculative server that sends four
  tokens at a time is not four times slower than it is.
- output_throughput: output tokens of all requests, as the server counted them,
  divided by the time from the first send to the last end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RequestTimes:
    """One request that was answered in full.

    Args:
        sent: when it was sent, seconds on a monotonic clock.
        chunks: for each chunk its time and the tokens received until then,
            as the server counted them.
        prompt_tokens: as the server counted them.
        accept_length: tokens per verification step, for a speculative server.
    """

    sent: float
    chunks: tuple[tuple[float, int], ...]
    prompt_tokens: int
    accept_length: float | None = None

    @property
    def output_tokens(self) -> int:
        return self.chunks[-1][1]

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.chunks[0][0] - self.sent

    @property
    def e2e(self) -> float:
        """Seconds to the end."""
        return self.chunks[-1][0] - self.sent

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first chunk; None where there is none."""
        later = self.output_tokens - self.chunks[0][1]
        return (self.e2e - self.ttft) / later if later > 0 else None

    def itl(self) -> list[float]:
        """Seconds between tokens, one value for each token after the first chunk."""
        values: list[float] = []
        (before, tokens), *later = self.chunks
        for at, count in later:
            if count > tokens:
                values += [(at - before) / (count - tokens)] * (count - tokens)
                before, tokens = at, count
        return values


def level_metrics(requests: Sequence[RequestTimes]) -> dict[str, float]:
    """The metrics of a level by name. What was not measured is absent.

    Args:
        requests: those that were answered in full.
    """
    import numpy as np

    if not requests:
        return {}
    seconds = max(r.chunks[-1][0] for r in requests) - min(r.sent for r in requests)
    metrics = {"prompt_tokens_mean": float(np.mean([r.prompt_tokens for r in requests]))}
    if seconds > 0:
        metrics["output_throughput"] = sum(r.output_tokens for r in requests) / seconds
        metrics["request_throughput"] = len(requests) / seconds
    samples = {
        "ttft": [r.ttft for r in requests],
        "tpot": [r.tpot for r in requests if r.tpot is not None],
        "itl": [value for r in requests for value in r.itl()],
        "e2e": [r.e2e for r in requests],
    }
    for name, values in samples.items():
        if values:
            metrics[f"{name}_mean_ms"] = 1000 * float(np.mean(values))
            for percent in (50, 90, 95, 99):
                metrics[f"{name}_p{percent}_ms"] = 1000 * float(np.percentile(values, percent))
    lengths = [r.accept_length for r in requests if r.accept_length is not None]
    if lengths:
        metrics["accept_length"] = float(np.mean(lengths))
    return metrics
