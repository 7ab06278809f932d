"""Every way in which the emulated engine can misbehave, as data.

``EMULATED_FAULT`` names one. Each comes from a public report or from what was
seen of SGLang, and says which class of failure a sweep must record for it;
none means that the trial must complete all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweeper.engines.emulated import fault_texts as texts
from sweeper.engines.emulated.fault_kinds import Fault

NONE = Fault("", "", "", "ready", "start")

# fmt: off
_ALL = (
    Fault("bad_flag", "bad_flag", "sglang PR#31609",
          "arguments", "refuses_flags", texts.BAD_FLAG, share=0.3),
    Fault("forbidden_by_engine", "forbidden_by_engine", "sglang#4425, speculative_hook.py:1278",
          "arguments", "launcher_raises", texts.FORBIDDEN),
    Fault("backend_not_for_gpu", "backend_not_for_gpu", "recording trtllm_mla.log (H200, 0.5.17)",
          "arguments", "launcher_raises", texts.BACKEND_NOT_FOR_GPU),
    Fault("missing_kernel_library", "missing_kernel_library", "recording fa3.log (H200, 0.5.17)",
          "graph_capture", "scheduler_raises", texts.MISSING_KERNELS, share=0.0),
    Fault("import_error", "import_error", "any module of SGLang's that is not installed",
          "arguments", "launcher_raises", texts.IMPORT_ERROR, share=0.05),
    Fault("model_missing", "model_missing", "seen with 0.5.23",
          "arguments", "launcher_raises", texts.MODEL_MISSING),
    Fault("oom_weights", "oom_weights", "a model too large for its GPUs",
          "weights", "scheduler_raises", texts.OOM_WEIGHTS, share=0.6, rank=2),
    Fault("oom_kv_pool", "oom_kv_pool", "mem_cache/memory_pool.py",
          "memory_pool", "scheduler_raises", texts.OOM_KV_POOL, share=0.1),
    Fault("oom_graph_capture", "oom_graph_capture", "sglang#23769",
          "graph_capture", "scheduler_raises", texts.OOM_GRAPHS, rank=1),
    Fault("not_enough_memory_for_kv", "not_enough_memory_for_kv", "pool_configurator.py:96",
          "memory_pool", "scheduler_raises", texts.NOT_ENOUGH_FOR_KV, share=0.0),
    Fault("unbalanced_gpu_memory", "unbalanced_gpu_memory", "bootstrap.py:445; leftovers as in sglang#23627",
          "distributed", "scheduler_raises", texts.UNBALANCED, share=0.9, rank=5),
    Fault("graph_capture_failed", "graph_capture_failed", "sglang#9706",
          "graph_capture", "scheduler_raises", texts.CAPTURE_FAILED, share=0.3, rank=3),
    Fault("nccl_init_hang", "nccl_init_hang", "sglang#3666, pytorch#88103",
          "distributed", "hangs", share=0.8),
    Fault("nccl_invalid_usage", "nccl_invalid_usage", "NCCL 2.24 and later, enqueue.cc",
          "graph_capture", "scheduler_raises", texts.NCCL_INVALID_USAGE, texts.NCCL_WARNING, share=0.05),
    Fault("nccl_collective_timeout", "nccl_collective_timeout", "sglang#3932, sglang#1691",
          "load", "scheduler_aborts", texts.NCCL_TIMEOUT, rank=3),
    Fault("nccl_error", "nccl_error", "nccl#1788",
          "distributed", "scheduler_raises", texts.NCCL_ERROR, share=0.8),
    Fault("watchdog_timeout", "watchdog_timeout", "sglang#17941, utils/watchdog.py",
          "load", "watchdog"),
    Fault("disk_full", "disk_full", "caches of compiled kernels",
          "graph_capture", "scheduler_raises", texts.DISK_FULL, share=0.1),
    Fault("warmup_failed", "warmup_failed", "sglang#17941, http_server.py:2533",
          "warm_up", "warm_up_fails", texts.WARM_UP),
    Fault("oom_under_load", "oom_under_load", "vllm#21410",
          "load", "scheduler_raises", texts.OOM_AT_LOAD),
    Fault("hang_arguments", "hung_start", "sglang#3666", "arguments", "hangs"),
    Fault("hang_weights", "hung_start", "a network file system that stopped", "weights", "hangs"),
    Fault("hang_memory_pool", "hung_start", "pytorch#88103", "memory_pool", "hangs", share=0.75),
    Fault("hang_graph_capture", "hung_start", "sglang PR#11275, PR#40648",
          "graph_capture", "hangs"),
    Fault("hang_warmup", "hung_start", "sglang#17941", "warm_up", "hangs"),
    Fault("port_stolen", "port_in_use", "sglang#17402; seen with 0.5.20", "http", "port_stolen"),
    Fault("tcpstore_port_race", "port_in_use", "sglang#37215",
          "distributed", "scheduler_raises", texts.PORT_RACE, share=0.1),
    Fault("ready_while_dying", "scheduler_exception", "sglang#33719",
          "ready", "scheduler_raises", texts.EXCEPTION_AT_LOAD),
    Fault("scheduler_exception_start", "scheduler_exception", "the field report: an EAGLE-3 wrapper",
          "memory_pool", "scheduler_raises", texts.EXCEPTION_AT_START, share=0.0),
    Fault("scheduler_exception_load", "scheduler_exception", "scheduler.py:6390",
          "load", "scheduler_raises", texts.EXCEPTION_AT_LOAD),
    Fault("rank_killed_start", "rank_killed", "sglang PR#20287", "weights", "rank_killed", rank=1),
    Fault("rank_killed_load", "rank_killed", "sglang PR#18582", "load", "rank_killed", rank=1),
    Fault("zombie", "dead_behind_http", "sglang#18421", "load", "rank_dies_unseen"),
    Fault("dies_under_load_silently", "crashed", "sglang#34260", "load", "dies"),
    Fault("exits_silently", "exited", "engine.py: a rank that is no head node",
          "memory_pool", "exits"),
    Fault("terminated_from_outside", "stopped_from_outside", "vllm#34643", "load", "terminated"),
    Fault("hang_under_load", "hung_under_load", "sglang#27949", "load", "requests"),
    Fault("stops_answering", "hung_under_load", "sglang#22779", "load", "requests"),
    Fault("slow_trickle", "level_timeout", "vllm#27886", "load", "requests"),
    Fault("truncated_streams", "request_errors", "sglang#2805", "load", "requests"),
    Fault("error_chunks", "request_errors", "errors inside a stream under HTTP 200",
          "load", "requests"),
    Fault("http_500", "request_errors", "vllm#26478", "load", "requests"),
    Fault("never_answers", "request_errors", "sglang#27949", "load", "requests"),
    Fault("no_usage", "request_errors", "sglang#23393", "load", "requests"),
    Fault("refuses", "refused_requests", "--api-key of another unit file", "load", "requests"),
    Fault("gpu_lost", "gpu_lost", "sglang#34260, open-gpu-kernel-modules#888",
          "load", "scheduler_raises", texts.GPU_LOST, texts.GPU_LOST_KERNEL, rank=4),
    Fault("server_info_broken", "read_back_failed", "sglang: /get_server_info was renamed",
          "load", "requests"),
    Fault("slow_load", "", "the field report: 313 s taken for a hang", "weights", "start"),
    Fault("leaked_children", "", "sglang#23627, PR#16756", "weights", "start"),
    Fault("ignores_term", "", "sglang PR#31645", "ready", "start"),
    Fault("orphaned_scheduler", "", "seen with 0.5.20: no death link while it imports",
          "weights", "start"),
    Fault("metrics_missing", "", "sglang PR#20821", "load", "requests"),
    Fault("other_log_format", "", "sglang PR#28937, #22331", "weights", "start"),
    Fault("quiet_log", "", "--log-level warning", "weights", "start"),
    Fault("health_lies", "", "sglang#33719, PR#37994", "http", "requests"),
)
# fmt: on


def catalog() -> Mapping[str, Fault]:
    """Every fault by its name."""
    return {fault.name: fault for fault in _ALL}


def find(name: str) -> Fault:
    """The fault of that name; :data:`NONE` for no name.

    Raises:
        ValueError: there is none; the message lists those that there are.
    """
    if not name:
        return NONE
    faults = catalog()
    if name not in faults:
        raise ValueError(f"EMULATED_FAULT={name} is not one of {', '.join(sorted(faults))}")
    return faults[name]
