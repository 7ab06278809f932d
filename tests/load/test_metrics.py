from __future__ import annotations

import pytest

from sweeper.load.metrics import RequestTimes, level_metrics
from sweeper.spec.rules import LEVEL_METRICS


def test_one_request_by_hand() -> None:
    # Sent at 10 s; a token at 10.5, then one every 0.1 s.
    chunks = tuple((10.5 + 0.1 * i, 1 + i) for i in range(11))
    found = level_metrics([RequestTimes(10.0, chunks, prompt_tokens=7)])
    assert found["ttft_p50_ms"] == pytest.approx(500)
    assert found["tpot_mean_ms"] == pytest.approx(100)
    assert found["itl_p99_ms"] == pytest.approx(100)
    assert found["e2e_mean_ms"] == pytest.approx(1500)
    assert found["output_throughput"] == pytest.approx(11 / 1.5)
    assert "accept_length" not in found


def test_four_tokens_a_chunk_are_not_one_slow_token() -> None:
    speculative = RequestTimes(0.0, ((1.0, 1), (1.4, 5), (1.8, 9)), 1, accept_length=4.0)
    assert speculative.itl() == pytest.approx([0.1] * 8)
    assert level_metrics([speculative])["accept_length"] == 4.0


def test_throughput_is_over_the_whole_level() -> None:
    requests = [
        RequestTimes(0.0, ((1.0, 1), (2.0, 10)), 1),
        RequestTimes(1.0, ((2.0, 1), (4.0, 10)), 1),
    ]
    assert level_metrics(requests)["output_throughput"] == pytest.approx(20 / 4)


def test_nothing_measured_is_nothing() -> None:
    assert level_metrics([]) == {}
    one_token = level_metrics([RequestTimes(0.0, ((1.0, 1),), 1)])
    assert "tpot_mean_ms" not in one_token
    assert "itl_mean_ms" not in one_token


def test_every_metric_that_a_file_may_name_exists() -> None:
    found = level_metrics([RequestTimes(0.0, ((1.0, 1), (2.0, 2)), 1, accept_length=1.5)])
    assert set(LEVEL_METRICS) <= set(found)
