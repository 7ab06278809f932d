"""The catalog: complete, and each fault with where it comes from."""

from __future__ import annotations

import pytest

from sweeper.engines.emulated.fault_kinds import told
from sweeper.engines.emulated.faults import NONE, catalog, find

# What the sweep must record for each; "" where the trial completes.
EXPECTED = {
    **{
        name: name
        for name in [
            "bad_flag",
            "forbidden_by_engine",
            "backend_not_for_gpu",
            "missing_kernel_library",
            "import_error",
            "model_missing",
            "oom_weights",
            "oom_kv_pool",
            "oom_graph_capture",
            "not_enough_memory_for_kv",
            "unbalanced_gpu_memory",
            "graph_capture_failed",
            "nccl_init_hang",
            "nccl_invalid_usage",
            "nccl_collective_timeout",
            "nccl_error",
            "watchdog_timeout",
            "disk_full",
            "warmup_failed",
            "oom_under_load",
            "gpu_lost",
        ]
    },
    **dict.fromkeys(
        ("hang_arguments", "hang_weights", "hang_memory_pool", "hang_graph_capture", "hang_warmup"),
        "hung_start",
    ),
    **dict.fromkeys(("port_stolen", "tcpstore_port_race"), "port_in_use"),
    **dict.fromkeys(
        ("ready_while_dying", "scheduler_exception_start", "scheduler_exception_load"),
        "scheduler_exception",
    ),
    **dict.fromkeys(("rank_killed_start", "rank_killed_load"), "rank_killed"),
    "zombie": "dead_behind_http",
    "dies_under_load_silently": "crashed",
    "exits_silently": "exited",
    "terminated_from_outside": "stopped_from_outside",
    **dict.fromkeys(("hang_under_load", "stops_answering"), "hung_under_load"),
    "slow_trickle": "level_timeout",
    **dict.fromkeys(
        ("truncated_streams", "error_chunks", "http_500", "never_answers", "no_usage"),
        "request_errors",
    ),
    "refuses": "refused_requests",
    "server_info_broken": "read_back_failed",
    **dict.fromkeys(
        [
            "slow_load",
            "leaked_children",
            "ignores_term",
            "orphaned_scheduler",
            "metrics_missing",
            "other_log_format",
            "quiet_log",
            "health_lies",
        ],
        "",
    ),
}


def test_each_fault_has_the_class_that_a_sweep_must_record() -> None:
    assert {name: fault.kind for name, fault in catalog().items()} == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_fault_says_where_it_comes_from(name: str) -> None:
    fault = find(name)
    assert fault.source
    assert 0 <= fault.share <= 1
    # Whatever fails with words has them, and whatever completes does not end.
    assert bool(fault.text) == (
        fault.how
        in (
            "scheduler_raises",
            "launcher_raises",
            "refuses_flags",
            "scheduler_aborts",
            "warm_up_fails",
        )
    )
    assert fault.kind or fault.exit_status is None


def test_no_fault_and_an_unknown_one() -> None:
    assert find("") is NONE
    with pytest.raises(ValueError, match="oom_weights"):
        find("nonsense")


def test_the_marks_in_a_text_are_filled() -> None:
    text = "GPU @GPU of rank @RANK, process @PID, port @PORT"
    assert told(text, rank=3, pid=7, port=1) == "GPU 3 of rank 3, process 7, port 1"
    for fault in catalog().values():
        assert "@" not in told(fault.text + fault.first, rank=0, pid=1, port=2)
