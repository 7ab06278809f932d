"""A dead server is put in the right class: the root cause, never its echo."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.engines.sglang.classify import Classified, Evidence, classify, read_lines
from sweeper.engines.sglang.failures import failures

RECORDINGS = Path(__file__).with_name("recordings")

SIGQUIT = "[2026-12-01 06:35:40] Received sigquit from a child process. It usually means the child failed."
SIGQUIT_LATER = "[2026-12-01 06:35:40] SIGQUIT received. signum=3, frame=None. It usually means one child failed."
OOM = (
    "CUDA out of memory. Tried to allocate 1.31 GiB. GPU 1 has a total capacity of 94.97 GiB "
    "of which 411.06 MiB is free."
)
KERNEL_OOM = "Out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB"
XID = "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', GPU has fallen off the bus."
READY = "[2026-12-01 06:01:10] The server is fired up and ready to roll!"
ROOT = "/opt/site/sglang/srt"


def stamped(text: str, rank: str = "") -> str:
    return f"[2026-12-01 06:01:31{' ' + rank if rank else ''}] {text}"


def trace(error: str, *frames: str) -> str:
    """A traceback whose frames are "file in function"."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        file, function = frame.split(" in ")
        lines += [f'  File "{ROOT}/{file}", line 12, in {function}', "    something()"]
    return "\n".join([*lines, error])


def scheduler(error: str, *frames: str, rank: str = "TP1", first: str = "__init__") -> str:
    """A rank that failed, and its parent that ends everything."""
    inner = trace(error, f"managers/scheduler.py in {first}", *frames)
    return f"{stamped('Scheduler hit an exception: ' + inner, rank)}\n\n{SIGQUIT}"


def launcher(error: str, *frames: str) -> str:
    return trace(error, "launch_server.py in <module>", *frames)


def died(log: str, status: int = -9, stage: str = "", *, kernel: tuple[str, ...] = ()) -> Evidence:
    return Evidence("", "", log.split("\n"), status, stage, kernel)


def lives(log: str, seen: str, stage: str = "serving", schedulers: bool | None = None) -> Evidence:
    what = seen.replace("_", " ")
    return Evidence(seen, what, log.split("\n"), None, stage, (), schedulers)


LOADING = "\n".join(
    [stamped("Init torch distributed begin.", "TP1"), stamped("Load weight begin. avail", "TP1")]
)
LOADED = LOADING + "\n" + stamped("Load weight end. elapsed=1.00 s", "TP1")
CAPTURING = f"{LOADED}\n{stamped('Memory pool end. avail mem=9 GB', 'TP1')}\n" + stamped(
    "Capture target decode CUDA graph begin. backend=full", "TP1"
)
UP = f"{CAPTURING}\n{stamped('INFO:     Uvicorn running on http://127.0.0.1:3')}\n{READY}"

CASES: list[tuple[str, str, Evidence]] = [
    # What the launcher says before anything was loaded.
    (
        "bad_flag",
        "unknown flag",
        died(
            "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --x", 2
        ),
    ),
    (
        "bad_flag",
        "ambiguous, of the new command",
        died("sglang serve: error: ambiguous option: --cuda-graph-bs could match --a, --b", 2),
    ),
    (
        "forbidden_by_engine",
        "page size",
        died(
            launcher(
                "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
                "('flashinfer', 'fa3'); got attention_backend='trtllm_mha'.",
                "server_args.py in __post_init__",
                "arg_groups/speculative_hook.py in _handle_eagle_family",
            ),
            1,
            "starting",
        ),
    ),
    (
        "forbidden_by_engine",
        "an assertion without words",
        died(launcher("AssertionError", "server_args.py in check_server_args"), 1),
    ),
    (
        "backend_not_for_gpu",
        "assertion in the scheduler",
        died(
            scheduler("AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. SM 90")
        ),
    ),
    (
        "backend_not_for_gpu",
        "no kernel image",
        died(
            scheduler(
                "Exception: Capture cuda graph failed: CUDA error: no kernel image is available "
                "for execution on the device"
            )
        ),
    ),
    (
        "backend_not_for_gpu",
        "another maker's",
        died(launcher("ValueError: x is only supported on NPU device", "arg_groups/x.py in y"), 1),
    ),
    (
        "import_error",
        "a package of the engine",
        died(launcher("ModuleNotFoundError: No module named 'orjson'", "http_server.py in <m>"), 1),
    ),
    (
        "import_error",
        "no engine",
        died("/usr/bin/python3: No module named sglang.launch_server", 1),
    ),
    (
        "missing_kernel_library",
        "symbol",
        died(
            scheduler(
                "ImportError: /opt/site/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda"
            )
        ),
    ),
    (
        "missing_kernel_library",
        "module",
        died(scheduler("ModuleNotFoundError: No module named 'flash_mla'")),
    ),
    (
        "missing_kernel_library",
        "another module that the package needs",
        died(
            scheduler("ModuleNotFoundError: No module named 'packaging'").replace(
                f"{ROOT}/managers", "/opt/site/flashinfer"
            )
        ),
    ),
    (
        "model_missing",
        "no such directory",
        died(
            launcher("OSError: Repo id must be in the form 'a/b': '/models/none'.", "x.py in y"), 1
        ),
    ),
    (
        "model_missing",
        "a file is missing",
        died(
            launcher("OSError: /m does not appear to have a file named config.json.", "x in y"), 1
        ),
    ),
    # Memory: where the rank stood decides, and the frames of the traceback before that.
    ("oom_weights", "stage", died(f"{LOADING}\n{scheduler('torch.OutOfMemoryError: ' + OOM)}")),
    ("oom_kv_pool", "stage", died(f"{LOADED}\n{scheduler('torch.OutOfMemoryError: ' + OOM)}")),
    ("oom_graph_capture", "stage", died(f"{CAPTURING}\n{scheduler('RuntimeError: ' + OOM)}")),
    ("oom_under_load", "stage", died(f"{UP}\n{scheduler('RuntimeError: ' + OOM)}", -9, "serving")),
    (
        "oom_weights",
        "frames, in a quiet log",
        died(scheduler("torch.OutOfMemoryError: " + OOM, "model_runner.py in load_model")),
    ),
    (
        "oom_kv_pool",
        "frames, in a quiet log",
        died(scheduler("torch.OutOfMemoryError: " + OOM, "model_runner.py in init_memory_pool")),
    ),
    (
        "oom_graph_capture",
        "words, in a quiet log",
        died(scheduler("Exception: Capture cuda graph failed: " + OOM)),
    ),
    (
        "oom_under_load",
        "frames, in a quiet log",
        died(
            scheduler(
                "torch.OutOfMemoryError: " + OOM,
                "managers/scheduler.py in run_batch",
                "model_executor/runner/decode_cuda_graph_runner.py in replay",
                first="event_loop_overlap",
            )
        ),
    ),
    (
        "oom_weights",
        "the draft model's, after graphs of the other",
        died(
            f"{CAPTURING}\n{stamped('Load weight begin. avail', 'TP1')}\n"
            + scheduler("torch.OutOfMemoryError: " + OOM),
            -9,
            "capturing graphs",
        ),
    ),
    (
        "oom_weights",
        "this rank is behind the others",
        died(
            f"{LOADING}\n{stamped('Memory pool end.', 'TP0')}\n"
            + scheduler("torch.OutOfMemoryError: " + OOM),
            -9,
            "memory pool",
        ),
    ),
    (
        "unbalanced_gpu_memory",
        "no memory before anything was loaded",
        died(
            f"{stamped('Init torch distributed begin.', 'TP1')}\n"
            + scheduler("torch.OutOfMemoryError: " + OOM)
        ),
    ),
    (
        "unbalanced_gpu_memory",
        "words",
        died(
            scheduler("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied")
        ),
    ),
    (
        "not_enough_memory_for_kv",
        "words",
        died(
            scheduler(
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
            )
        ),
    ),
    (
        "host_out_of_memory",
        "a rank, by the kernel",
        died(
            trace(
                "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9). If exit "
                "code is -9 (SIGKILL), a common cause is the OS OOM killer.",
                "entrypoints/engine.py in _wait_for_scheduler_ready",
            ),
            1,
            kernel=(KERNEL_OOM,),
        ),
    ),
    ("host_out_of_memory", "the launcher, by the kernel", died("", -9, kernel=(KERNEL_OOM,))),
    (
        "host_out_of_memory",
        "only counted",
        died("", -9, kernel=("oom_kill: processes of this machine killed for lack of memory: 1",)),
    ),
    ("host_out_of_memory", "Python's", died(scheduler("MemoryError"))),
    # Ended from outside.
    (
        "rank_killed",
        "while loading",
        died(
            trace(
                "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9).",
                "entrypoints/engine.py in _wait_for_scheduler_ready",
            ),
            1,
        ),
    ),
    (
        "rank_killed",
        "while serving",
        died(
            f"{UP}\n{stamped('Subprocess scheduler_1 (pid=7) crashed with exit code -9. Triggering')}"
            f"\n{SIGQUIT_LATER}",
            -9,
            "serving",
        ),
    ),
    (
        "rank_killed",
        "0.5.9",
        died(
            f"{stamped('Rank 0 scheduler is dead. Please check if there are relevant logs.')}\n"
            f"{stamped('Exit code: -9')}\n{launcher('EOFError', 'entrypoints/engine.py in x')}",
            1,
        ),
    ),
    (
        "stopped_from_outside",
        "while serving, 0.5.23",
        died(
            f"{UP}\n{stamped('SIGTERM received. signum=None frame=None. Draining')}", 0, "serving"
        ),
    ),
    ("stopped_from_outside", "while loading", died(LOADING, -15, "loading weights")),
    ("stopped_from_outside", "from a keyboard", died(UP, -2, "serving")),
    (
        "stopped_from_outside",
        "orphans that complain",
        died(scheduler("BrokenPipeError: [Errno 32] Broken pipe").replace(SIGQUIT, ""), -15),
    ),
    # Ports.
    (
        "port_in_use",
        "ready was printed",
        died(
            f"{stamped('INFO:     Application startup complete.')}\n"
            + stamped(
                "ERROR:    [Errno 98] error while attempting to bind on address "
                "('127.0.0.1', 3): address already in use"
            )
            + f"\n{READY}",
            3,
            "warm-up",
        ),
    ),
    (
        "port_in_use",
        "of torch",
        died(
            scheduler(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
                "local network address. port: 1, code: -98, name: EADDRINUSE, message: address "
                "already in use"
            )
        ),
    ),
    (
        "port_in_use",
        "of DP attention",
        died(launcher("ValueError: nccl_port at 30234 is not available", "server_args.py in x"), 1),
    ),
    # NCCL.
    (
        "nccl_invalid_usage",
        "no algorithm",
        died(
            "host:5:5 [1] enqueue.cc:2037 NCCL WARN Error : no algorithm/protocol available for "
            "function AllGather with datatype ncclBfloat16. NCCL_ALGO was set to tree.\n"
            + scheduler("RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN)")
        ),
    ),
    (
        "nccl_invalid_usage",
        "a token, inside a capture",
        died(
            'host:5:5 [1] NCCL WARN Unrecognized element token "rong" when parsing "rong"\n'
            + scheduler("Exception: Capture cuda graph failed: NCCL error: invalid usage (run")
        ),
    ),
    (
        "nccl_collective_timeout",
        "then aborted",
        died(
            "[rank3]:[E1203 04:12:39.4 ProcessGroupNCCL.cpp:697] [Rank 3] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=1, Timeout(ms)=600000)\n"
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            "Fatal Python error: Aborted\n"
            + stamped(
                "Subprocess scheduler_3 (pid=7) crashed with exit code -6. Triggering SIGQUIT"
            )
            + f"\n{SIGQUIT_LATER}",
            -9,
            "serving",
        ),
    ),
    (
        "nccl_error",
        "multicast memory, which is none of the model's",
        died(
            scheduler(
                "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda "
                "error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
                "transport/nvls.cc:245 Cuda failure 'out of memory'"
            ),
            -9,
            "distributed init",
        ),
    ),
    (
        "nccl_error",
        "inside a capture",
        died(scheduler("Exception: Capture cuda graph failed: NCCL error: x")),
    ),
    ("nccl_init_hang", "hung", lives(LOADING.split("\n")[0], "hung_start", "distributed init")),
    ("nccl_init_hang", "kept busy", lives("", "start_timeout", "distributed init")),
    (
        "nccl_init_hang",
        "torch gave up",
        died(
            scheduler(
                "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients"
            )
        ),
    ),
    # The engine.
    (
        "graph_capture_failed",
        "custom all-reduce",
        died(
            scheduler(
                "Exception: Capture cuda graph failed: Runtime check failed at sgl_kernel/distributed/"
                "custom_all_reduce.cuh:37: CUDA error: invalid argument\nPossible solutions:\n"
                "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"
            )
        ),
    ),
    (
        "watchdog_timeout",
        "0.5.23",
        died(
            f"{UP}\n"
            + stamped(
                "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "TP1"
            )
            + f"\n{SIGQUIT_LATER}\n{stamped('Subprocess scheduler_0 (pid=7) crashed with exit code -9.')}",
            -9,
            "serving",
        ),
    ),
    (
        "watchdog_timeout",
        "0.5.5",
        died(stamped("Watchdog timeout (self.watchdog_timeout=300)", "TP1")),
    ),
    (
        "warmup_failed",
        "no answer",
        died(
            stamped("Initialization failed. warmup error: ")
            + trace("requests.exceptions.ReadTimeout: Read timed out. (read timeout=600)", "x in y")
        ),
    ),
    (
        "scheduler_exception",
        "a wrapper without a method",
        died(f"{LOADED}\n{scheduler('AttributeError: no set_eagle3_layers_to_capture')}"),
    ),
    (
        "scheduler_exception",
        "no words but the parent's",
        died(f"{READY}\n{SIGQUIT}", -9, "warm-up"),
    ),
    (
        "scheduler_exception",
        "the launcher's own",
        died(launcher("ZeroDivisionError: division by zero", "entrypoints/engine.py in launch"), 1),
    ),
    (
        "scheduler_exception",
        "CUDA, no sign of a lost GPU",
        died(
            f"{UP}\n{scheduler('torch.AcceleratorError: CUDA error: unspecified launch failure')}"
        ),
    ),
    # The machine.
    (
        "disk_full",
        "kernel cache",
        died(scheduler("OSError: [Errno 28] No space left on device: '/root/.triton/x.cubin'")),
    ),
    (
        "disk_full",
        "shared memory of NCCL",
        died(
            "h:1:2 [0] shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 33030532 "
            "bytes, error: No space left on device (28)\n"
            + scheduler("RuntimeError: NCCL error: x")
        ),
    ),
    (
        "gpu_lost",
        "in the log",
        died(f"{UP}\n{XID}\n{scheduler('torch.AcceleratorError: CUDA error: unknown error')}"),
    ),
    (
        "gpu_lost",
        "only the kernel tells",
        died(
            f"{UP}\n{scheduler('torch.AcceleratorError: CUDA error: unspecified launch failure')}",
            -9,
            "serving",
            kernel=(XID,),
        ),
    ),
    # No words.
    ("crashed", "a signal", died(UP, -11, "serving")),
    ("crashed", "as a shell tells it", died(UP, 139, "serving")),
    ("crashed", "killed", died(UP, -9, "serving")),
    (
        "crashed",
        "a rank",
        died(
            f"{UP}\nFatal Python error: Segmentation fault\n"
            f"{stamped('Subprocess scheduler_1 (pid=7) crashed with exit code -11.')}\n{SIGQUIT_LATER}",
            -9,
            "serving",
        ),
    ),
    ("exited", "nothing", died("", 0)),
    ("exited", "a status", died(LOADING, 1)),
    # Seen from outside, while it lives.
    ("dead_behind_http", "0.5.9 prints nothing", lives(UP, "hung_under_load", "serving", False)),
    ("dead_behind_http", "by its name", lives(UP, "dead_behind_http", "serving", False)),
    ("wrong_server", "a stranger answers", lives("", "wrong_server", "warm-up")),
    ("wrong_server", "and ours is dead", Evidence("wrong_server", "x", [], 1, "warm-up")),
    ("warmup_failed", "as seen", lives("", "warmup", "warm-up")),
    ("hung_start", "weights", lives(LOADING, "hung_start", "loading weights")),
    ("start_timeout", "weights", lives(LOADING, "start_timeout", "loading weights")),
    ("hung_under_load", "as seen", lives(UP, "hung_under_load")),
    ("level_timeout", "as seen", lives(UP, "level_timeout")),
    ("request_errors", "as seen", lives(UP, "request_errors")),
    ("refused_requests", "as seen", lives(UP, "refused_requests")),
    ("read_back_failed", "as seen", lives(UP, "read_back_failed")),
    ("gpu_throttled", "as seen", lives(UP, "gpu_throttled")),
    ("launch_failed", "as seen", Evidence("launch_failed", "no such file", [], None, "")),
    ("not_stopped", "as seen", Evidence("not_stopped", "pid 7 is left", [], -9, "serving")),
    ("sweeper_error", "as seen", lives(UP, "sweeper_error")),
    ("gpus_busy", "as seen", lives(UP, "gpus_busy")),
    ("worker_died", "as seen", lives(UP, "worker_died")),
    ("sweeper_error", "a class that nobody knows", lives(UP, "something_new")),
]


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [pytest.param(kind, evidence, id=f"{kind}: {name}") for kind, name, evidence in CASES],
)
def test_every_class(kind: str, evidence: Evidence) -> None:
    found = classify(evidence)
    failure = failures()[kind]
    assert found.kind == kind, found
    assert (found.blame, found.retry, found.advice) == (
        failure.blame,
        failure.retry,
        failure.advice,
    )
    assert found.what


def test_no_class_is_left_out() -> None:
    assert {kind for kind, _, _ in CASES} == set(failures())


# --- Root causes and echoes

NEIGHBOUR = scheduler(
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
    rank="TP0",
)
REMOTE = scheduler(
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:77, remote process exited or "
    "there was a network error, NCCL version 2.28.9",
    rank="TP2",
)
CAPTURE_ECHO = scheduler(
    "Exception: Capture cuda graph failed: [gloo/transport/tcp/pair.cc:534] Connection closed by peer",
    rank="TP3",
)
WATCHDOG = stamped("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "TP0")
DIED = stamped("Subprocess scheduler_1 (pid=7) crashed with exit code -9. Triggering SIGQUIT")
ECHOES = [NEIGHBOUR, REMOTE, CAPTURE_ECHO, SIGQUIT, SIGQUIT_LATER]
ROOTS = {
    "oom_graph_capture": scheduler("Exception: Capture cuda graph failed: " + OOM),
    "missing_kernel_library": scheduler("ImportError: Can not import FA3 in sgl_kernel."),
    "scheduler_exception": scheduler("IndexError: index 7 is out of bounds"),
    "nccl_invalid_usage": scheduler("RuntimeError: NCCL error: invalid usage (run with"),
    "graph_capture_failed": scheduler("Exception: Capture cuda graph failed: x"),
    "watchdog_timeout": WATCHDOG,
    "rank_killed": DIED,
}


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("kind", ROOTS)
def test_an_echo_never_counts(kind: str, echo: str) -> None:
    assert classify(died(f"{ROOTS[kind]}\n{echo}")).kind == kind
    if not (kind == "rank_killed" and "sigquit" in echo.lower()):
        # In whatever order the ranks wrote into the one log.
        assert classify(died(f"{echo}\n{ROOTS[kind]}")).kind == kind


@pytest.mark.parametrize("consequence", [WATCHDOG, DIED, scheduler("RuntimeError: NCCL error: x")])
def test_a_cause_counts_wherever_it_stands(consequence: str) -> None:
    cause = scheduler("torch.OutOfMemoryError: " + OOM, "model_runner.py in load_model")
    for log in (f"{cause}\n{consequence}", f"{consequence}\n{cause}"):
        assert classify(died(log)).kind == "oom_weights"


def test_the_first_of_two_errors() -> None:
    first = scheduler("TypeError: 'NoneType' object is not subscriptable")
    then = scheduler("RuntimeError: NCCL error: unhandled system error", rank="TP0")
    assert classify(died(f"{first}\n{then}")).kind == "scheduler_exception"
    assert classify(died(f"{then}\n{first}")).kind == "nccl_error"


def test_a_child_that_dies_at_the_end_is_no_news() -> None:
    log = f"{stamped('SIGTERM received. Draining requests and shutting down...')}\n{DIED}"
    assert classify(died(log)).kind == "stopped_from_outside"


def test_what_came_before_it_served_did_no_harm() -> None:
    """Libraries print tracebacks of what they then do without."""
    harmless = launcher("ImportError: cannot import name 'x' from 'flashinfer'", "x in y")
    log = f"{harmless}\n{UP}"
    assert classify(lives(log, "level_timeout")).kind == "level_timeout"
    assert classify(died(log, -11, "serving")).kind == "crashed"
    assert classify(died(log, 1, "memory pool")).kind == "missing_kernel_library"


def test_a_death_explains_what_was_seen() -> None:
    log = f"{UP}\n{scheduler('torch.OutOfMemoryError: ' + OOM)}".split("\n")
    for seen in ("hung_under_load", "request_errors", "level_timeout", "read_back_failed"):
        assert classify(Evidence(seen, "x", log, -9, "serving")).kind == "oom_under_load"
        assert classify(Evidence(seen, "x", log, None, "serving")).kind == "oom_under_load"
        assert classify(Evidence(seen, "x", [], -11, "serving")).kind == "crashed"


def test_a_key_is_wanted_whatever_the_log_says() -> None:
    log = scheduler("IndexError: x").split("\n")
    for status in (None, -9):
        assert classify(Evidence("refused_requests", "401", log, status, "http up")).kind == (
            "refused_requests"
        )


def test_a_kill_for_lack_of_memory_elsewhere() -> None:
    """The kernel's record alone does not outweigh what the engine says."""
    found = classify(died(scheduler("IndexError: x"), kernel=(KERNEL_OOM,)))
    assert found.kind == "scheduler_exception"
    found = classify(
        died(launcher("ValueError: x", "server_args.py in y"), 1, kernel=(KERNEL_OOM,))
    )
    assert found.kind == "forbidden_by_engine"


def test_errors_of_the_program_are_no_lost_gpu() -> None:
    record = XID.replace("79", "31").replace("GPU has fallen off the bus.", "MMU Fault")
    found = classify(died(scheduler("RuntimeError: CUDA error: x"), kernel=(record,)))
    assert found.kind == "scheduler_exception"


# --- What is told


def test_evidence_and_words() -> None:
    error = "torch.OutOfMemoryError: " + OOM
    log = f"{LOADING}\nnoise\n{scheduler(error, 'model_runner.py in load_model')}\n{NEIGHBOUR}"
    found = classify(died(log, -9, "memory pool"))
    assert found.stage == "loading weights"
    assert found.what == f"the server ended by SIGKILL: {error}"
    assert found.evidence == (
        "[2026-12-01 06:01:31 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        error,
    )


def test_words_of_the_sweeper_come_first() -> None:
    seen = Evidence("level_timeout", "the level took 60 s", UP.split("\n"), -11, "serving")
    assert classify(seen).what == "the level took 60 s; the server ended by SIGSEGV"
    ended = Evidence("", "the server ended with status 1", [], 1, "starting")
    assert classify(ended).what == "the server ended with status 1"


def test_records_of_the_kernel_are_evidence() -> None:
    found = classify(died(DIED, kernel=("eth0: link up", KERNEL_OOM)))
    assert found.kind == "host_out_of_memory"
    assert found.evidence == (DIED, KERNEL_OOM)
    found = classify(died("", -9, kernel=(XID,)))
    assert found.evidence == (XID,)
    assert found.what.endswith(XID)


def test_the_end_of_the_log_where_nothing_decides() -> None:
    found = classify(died("\n".join(f"line {n}" for n in range(100)) + "\n\n", 1, "memory pool"))
    assert found.kind == "exited"
    assert found.evidence == tuple(f"line {n}" for n in range(92, 100))
    assert found.stage == "memory pool"


def test_settings_never_are_evidence() -> None:
    line = stamped(
        "server_args=ServerArgs(api_key='secret', x='CUDA out of memory', y='NCCL error: ')"
    )
    found = classify(died(line + "\n" + scheduler("IndexError: x")))
    assert found.kind == "scheduler_exception"
    assert "secret" not in " ".join(found.evidence)


# --- Logs as they are


def test_glued_lines() -> None:
    """sglang#6342: a progress bar has no line end."""
    bar = "Capturing batches (bs=8 avail_mem=14.45 GB):  29%|##8  | 8/28 [00:14<00:25,  1.30s/it]"
    log = bar + scheduler("torch.OutOfMemoryError: " + OOM, rank="")
    found = classify(died(log))
    assert found.kind == "oom_graph_capture"
    assert found.evidence[0].startswith("[2026-12-01 06:01:31] Scheduler hit")


def test_a_traceback_that_another_rank_interrupts() -> None:
    head, *rest = scheduler("torch.OutOfMemoryError: " + OOM, "x.py in load_model").split("\n")
    log = "\n".join([head, *rest[:3], stamped("Load weight end.", "TP0"), *rest[3:]])
    assert classify(died(log, -9, "loading weights")).kind == "oom_weights"


def test_words_of_the_kernel_inside_a_traceback() -> None:
    head, *rest = scheduler("torch.OutOfMemoryError: " + OOM, "x.py in load_model").split("\n")
    log = "\n".join([head, *rest[:2], "[rank0]:[W1201 ProcessGroupNCCL.cpp:1] hm", *rest[2:]])
    assert classify(died(log, -9, "capturing graphs")).kind == "oom_weights"


@pytest.mark.parametrize(
    ("recording", "status", "stage", "kind"),
    [
        ("h200_fa3_0.5.17.log", -9, "memory pool", "missing_kernel_library"),
        ("h200_trtllm_mla_0.5.17.log", 1, "starting", "backend_not_for_gpu"),
        ("cpu_ngram_refused_0.5.23.log", -9, "loading weights", "missing_kernel_library"),
        # These were stopped by whoever recorded them; had we not done it, it was from outside.
        ("cpu_ready_0.5.23.log", -9, "serving", "stopped_from_outside"),
        ("cpu_tp2_0.5.23.log", -9, "serving", "stopped_from_outside"),
        ("h200_triton_0.5.17.log", 0, "serving", "stopped_from_outside"),
        ("h200_eagle3_0.5.17.log", 0, "serving", "stopped_from_outside"),
    ],
)
def test_recordings(recording: str, status: int, stage: str, kind: str) -> None:
    lines = read_lines(RECORDINGS / recording)
    found = classify(Evidence("", "", lines, status, stage))
    assert found.kind == kind
    assert found.evidence


def test_recorded_evidence() -> None:
    lines = read_lines(RECORDINGS / "h200_fa3_0.5.17.log")
    found = classify(Evidence("", "", lines, -9, "memory pool"))
    last = "ImportError: Can not import FA3 in sgl_kernel. Please check your installation."
    assert found.evidence[-1] == last
    lines = read_lines(RECORDINGS / "cpu_ngram_refused_0.5.23.log")
    found = classify(Evidence("", "", lines, -9, "loading weights"))
    assert found.what.endswith("[sgl_kernel] CRITICAL: Could not load any common_ops library!")


@pytest.mark.parametrize("seen", ["level_timeout", "hung_start", "request_errors"])
def test_good_recordings_explain_nothing(seen: str) -> None:
    for path in RECORDINGS.glob("*.log"):
        lines = read_lines(path)
        stopped = [number for number, line in enumerate(lines) if "SIGTERM received" in line]
        if stopped:
            found = classify(Evidence(seen, "x", lines[: stopped[0]], None, "warm-up"))
            assert found.kind == seen


# --- Whatever comes

FRAGMENTS = [*ECHOES, *ROOTS.values(), UP, XID, KERNEL_OOM, "\x00", "[2026-12-01 06:01:31", "", "x"]


@settings(deadline=None)
@given(
    seen=st.sampled_from(["", "warmup", *failures()]) | st.text(),
    what=st.text(),
    lines=st.lists(st.sampled_from(FRAGMENTS) | st.text(), max_size=20),
    status=st.none() | st.integers(-200, 300),
    stage=st.sampled_from(["", "serving", "loading weights"]) | st.text(),
    kernel=st.lists(st.sampled_from([XID, KERNEL_OOM]) | st.text(), max_size=3),
    alive=st.none() | st.booleans(),
)
def test_always_a_known_class(
    seen: str,
    what: str,
    lines: list[str],
    status: int | None,
    stage: str,
    kernel: list[str],
    alive: bool | None,
) -> None:
    found = classify(Evidence(seen, what, lines, status, stage, kernel, alive))
    assert isinstance(found, Classified)
    assert found.kind in failures()
    assert found.what
    assert all(line and "\n" not in line for line in found.evidence)
    again = "\n".join(lines).split("\n")
    assert classify(Evidence(seen, what, again, status, stage, kernel, alive)).kind in failures()


def test_a_log_of_any_length_takes_no_long_time() -> None:
    """Two seconds is the goal; the bound is loose, for a machine that is busy."""
    many = [stamped(f"request {n} failed: error of no known kind", "TP1") for n in range(60_000)]
    long = ["ImportError " * 100_000] * 20 + ["[" * 1_000_000]
    log = [*UP.split("\n"), *many, *long, *scheduler("torch.OutOfMemoryError: " + OOM).split("\n")]
    assert classify(Evidence("", "", log, -9, "serving")).kind == "oom_under_load"


# --- Reading


def test_lines_end_in_many_ways(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\r\ntwo\rthree\n\nfo\xff\xfeur\x85\xe2\x80\xa8x\nfive")
    assert read_lines(log) == ["one", "two", "three", "", "fo\ufffd\ufffdur\ufffd\u2028x", "five"]
    log.write_bytes(b"one\n")
    assert read_lines(log) == ["one"]
    log.write_bytes(b"")
    assert read_lines(log) == []


def test_no_log(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none") == []
    assert read_lines(tmp_path) == []


def test_a_huge_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        stream.write(b"first\n")
        stream.seek(40 << 20)
        stream.write(b"\nlast\n")
    lines = read_lines(log)
    assert (lines[0], lines[-1]) == ("first", "last")
    assert sum(map(len, lines)) < 17 << 20
    assert any(line.endswith("bytes left out ...") for line in lines)
