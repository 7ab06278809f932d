"""The fact that ``without_ray`` is built on, asked of the installed Ray."""

from __future__ import annotations

import os

import pytest


def test_ray_limits_the_threads_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from sweeper.engines.sglang.launch import without_ray

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = set(os.environ)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        worker = ray.get(ray.remote(lambda: dict(os.environ)).remote(), timeout=60)
    finally:
        ray.shutdown()
    assert worker["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in without_ray(worker, before)
