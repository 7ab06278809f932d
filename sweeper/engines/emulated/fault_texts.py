"""What SGLang 0.5.23, PyTorch and NCCL print when they fail, for :mod:`.faults`.

The words of SGLang are read in its source and in recordings of real failures,
those of PyTorch in its library and in public reports; frames of a traceback are
shortened. ``@RANK`` is the rank that prints, ``@GPU`` its device, ``@PID`` its
process and ``@PORT`` the port of the server.
"""

from __future__ import annotations

_SRT = "/opt/sglang/lib/python3.12/site-packages/sglang/srt"
_TORCH = "/opt/sglang/lib/python3.12/site-packages/torch"


def _frames(*frames: tuple[str, str]) -> str:
    return "".join(f'  File "{place}\n    {code}\n' for place, code in frames)


def _trace(*frames: tuple[str, str], error: str) -> str:
    return f"Traceback (most recent call last):\n{_frames(*frames)}{error}\n"


def _scheduler(*frames: tuple[str, str], error: str) -> str:
    return _trace(
        (
            f'{_SRT}/managers/scheduler.py", line 6362, in run_scheduler_process',
            "scheduler = Scheduler(server_args, port_args)",
        ),
        (
            f'{_SRT}/managers/scheduler.py", line 568, in __init__',
            "self.init_model_worker()",
        ),
        *frames,
        error=error,
    )


def _running(*frames: tuple[str, str], error: str) -> str:
    return _trace(
        (
            f'{_SRT}/managers/scheduler.py", line 6368, in run_scheduler_process',
            "scheduler.run_event_loop()",
        ),
        (
            f'{_SRT}/managers/scheduler.py", line 3204, in run_batch',
            "batch_result = self.model_worker.forward_batch_generation(batch)",
        ),
        *frames,
        error=error,
    )


def _launcher(*frames: tuple[str, str], error: str) -> str:
    start = (
        ('<frozen runpy>", line 198, in _run_module_as_main', "return _run_code(code, ...)"),
        ('/opt/sglang/launch_server.py", line 84, in <module>', "run_server(server_args)"),
    )
    return _trace(*start, *frames, error=error)


def _out_of_memory(tried: str, free: str, used: str) -> str:
    return (
        f"CUDA out of memory. Tried to allocate {tried}. GPU @GPU has a total capacity of "
        f"94.97 GiB of which {free} is free. Including non-PyTorch memory, this process has "
        f"{used} memory in use. Of the allocated memory {used} is allocated by PyTorch, and "
        "151.26 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/"
        "stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )


_CAPTURE_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. "
    "(Not recommended. Huge performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)
_RUNNER = f"{_SRT}/model_executor/model_runner.py"
_CAPTURE = (
    f'{_SRT}/model_executor/runner/decode_cuda_graph_runner.py", line 602, in __init__',
    "raise Exception(",
)
_NCCL = f"{_SRT}/distributed/device_communicators/pynccl_wrapper.py"

BAD_FLAG = (
    "usage: sglang serve [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH] ...\n"
    "sglang serve: error: unrecognized arguments: --enable-piecewise-cuda-graph\n"
)
FORBIDDEN = _launcher(
    (f'{_SRT}/server_args.py", line 277, in resolve_once', "run_resolution_pipeline(self)"),
    (
        f'{_SRT}/arg_groups/speculative_hook.py", line 1278, in _handle_eagle_family',
        "raise ValueError(",
    ),
    error="ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
    "('flashinfer', 'fa3', 'triton'); got attention_backend='trtllm_mha'. "
    "Use page_size == 1 or one of those backends.",
)
BACKEND_NOT_FOR_GPU = _launcher(
    (
        f'{_SRT}/arg_groups/overrides.py", line 2121, in _mla_kv_cache_dtype_checks',
        "raise ValueError(",
    ),
    error="ValueError: TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). "
    "Please use a different backend.",
)
MISSING_KERNELS = _scheduler(
    (
        f'{_SRT}/layers/attention/attention_registry.py", line 222, in create_flashattention_v3',
        "return FlashAttentionBackend(runner)",
    ),
    (
        f'{_SRT}/layers/attention/flashattention_backend.py", line 254, in __init__',
        "from sgl_kernel.flash_attn import (",
    ),
    error="ImportError: Can not import FA3 in sgl_kernel. Please check your installation.",
)
IMPORT_ERROR = _launcher(
    (f'{_SRT}/entrypoints/http_server.py", line 38, in <module>', "import orjson"),
    error="ModuleNotFoundError: No module named 'orjson'",
)
MODEL_MISSING = _launcher(
    (
        f'{_SRT}/utils/hf_transformers/config.py", line 387, in get_config',
        "meta = load_pointer_adapter(model, revision)",
    ),
    (
        '/opt/sglang/transformers/utils/hub.py", line 595, in cached_files',
        'raise OSError(f"{e}") from e',
    ),
    error="OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    "'/models/none'. Use `repo_type` argument if needed.",
)
OOM_WEIGHTS = _scheduler(
    (f'{_RUNNER}", line 1290, in load_model', "self.model = self.loader.load_model("),
    (
        f'{_SRT}/layers/moe/fused_moe_triton/layer.py", line 262, in __init__',
        "self.quant_method.create_weights(",
    ),
    (
        f'{_TORCH}/utils/_device.py", line 109, in __torch_function__',
        "return func(*args, **kwargs)",
    ),
    error="torch.OutOfMemoryError: " + _out_of_memory("1.31 GiB", "411.06 MiB", "94.55 GiB"),
)
OOM_KV_POOL = _scheduler(
    (f'{_RUNNER}", line 1502, in init_memory_pool', "self.token_to_kv_pool = MLATokenToKVPool("),
    (f'{_SRT}/mem_cache/memory_pool.py", line 1844, in _create_buffers', "torch.zeros("),
    error="torch.OutOfMemoryError: " + _out_of_memory("10.42 GiB", "7.96 GiB", "86.98 GiB"),
)
OOM_GRAPHS = _scheduler(
    (f'{_RUNNER}", line 1688, in init_decode_cuda_graph', "self.decode_runner = runner_cls(self)"),
    _CAPTURE,
    error="Exception: Capture cuda graph failed: "
    + _out_of_memory("896.00 MiB", "318.88 MiB", "94.64 GiB")
    + "\n"
    + _CAPTURE_ADVICE,
)
NOT_ENOUGH_FOR_KV = _scheduler(
    (
        f'{_SRT}/model_executor/pool_configurator.py", line 99, in __post_init__',
        "raise RuntimeError(msg)",
    ),
    error="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    "Current value: mem_fraction_static=0.7",
)
UNBALANCED = _scheduler(
    (
        f'{_SRT}/distributed/bootstrap.py", line 450, in _check_tp_memory_balance',
        "raise RuntimeError(msg)",
    ),
    error="RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
    "processes. pre_model_load_memory=41.7197265625, local_gpu_memory=93.89013671875, "
    "local_gpu_memory * 0.9=84.501123046875",
)
CAPTURE_FAILED = _scheduler(
    (f'{_RUNNER}", line 1688, in init_decode_cuda_graph', "self.decode_runner = runner_cls(self)"),
    _CAPTURE,
    error="Exception: Capture cuda graph failed: Runtime check failed at /opt/sglang/jit_kernel/"
    "include/sgl_kernel/distributed/custom_all_reduce.cuh:37: CUDA error: invalid argument\n"
    + _CAPTURE_ADVICE,
)
NCCL_WARNING = (
    "gpu-host:@PID:@PID [@RANK] enqueue.cc:2037 NCCL WARN Error : no algorithm/protocol available "
    "for function AllGather with datatype ncclBfloat16. NCCL_ALGO was set to tree.\n"
)
NCCL_INVALID_USAGE = _scheduler(
    (f'{_SRT}/distributed/parallel_state.py", line 771, in all_gather', "pynccl_comm.all_gather("),
    (f'{_NCCL}", line 474, in NCCL_CHECK', 'raise RuntimeError(f"NCCL error: {error_str}")'),
    error="RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
)
NCCL_ERROR = _scheduler(
    (
        f'{_TORCH}/distributed/distributed_c10d.py", line 2959, in all_reduce',
        "work = group.allreduce([tensor], opts)",
    ),
    error="torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
    "NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), "
    "NCCL version 2.28.9\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "transport/nvls.cc:245 Cuda failure 'out of memory'",
)
_TIMED_OUT = (
    "[Rank @RANK] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=184213, "
    "OpType=ALLREDUCE, NumelIn=7168, NumelOut=7168, Timeout(ms)=600000) ran for 600043 "
    "milliseconds before timing out."
)
NCCL_TIMEOUT = (
    f"[rank@RANK]:[E1203 04:12:39.408271257 ProcessGroupNCCL.cpp:697] {_TIMED_OUT}\n"
    "[rank@RANK]:[E1203 04:12:39.408611343 ProcessGroupNCCL.cpp:2284] [PG ID 2 PG GUID 3 Rank @RANK]"
    "  failure detected by watchdog at work sequence id: 184213 PG status: last enqueued work: "
    "184213, last completed work: 184212\n"
    "[rank@RANK]:[E1203 04:12:39.408634112 ProcessGroupNCCL.cpp:772] [Rank @RANK] To avoid data "
    "inconsistency, we are taking the entire process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    f"  what():  [PG ID 2 PG GUID 3 Rank @RANK] Process group watchdog thread terminated with "
    f"exception: {_TIMED_OUT}\n"
    "Fatal Python error: Aborted\n"
)
DISK_FULL = _scheduler(
    (f'{_RUNNER}", line 1688, in init_decode_cuda_graph', "self.decode_runner = runner_cls(self)"),
    (
        '/opt/sglang/triton/runtime/cache.py", line 128, in put',
        "with open(temp_path, mode) as f:",
    ),
    error="OSError: [Errno 28] No space left on device: "
    "'/root/.triton/cache/QH5MT2WV/tmp.pid_@PID/fused_moe_kernel.cubin'",
)
PORT_RACE = _scheduler(
    (
        f'{_TORCH}/distributed/rendezvous.py", line 198, in _create_c10d_store',
        "return TCPStore(",
    ),
    error="torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 18103, useIpv6: false, code: -98, name: EADDRINUSE, "
    "message: address already in use",
)
WARM_UP = _trace(
    (
        f'{_SRT}/entrypoints/http_server.py", line 2492, in _execute_server_warmup',
        "res = requests.post(",
    ),
    (
        '/opt/sglang/requests/adapters.py", line 713, in send',
        "raise ReadTimeout(e, request=request)",
    ),
    error="requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=@PORT): "
    "Read timed out. (read timeout=600)",
)
EXCEPTION_AT_START = _scheduler(
    (
        f'{_SRT}/managers/scheduler.py", line 1133, in init_model_worker',
        "self.maybe_init_draft_worker()",
    ),
    error="AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute "
    "'set_eagle3_layers_to_capture'",
)
EXCEPTION_AT_LOAD = _running(
    (
        f'{_SRT}/layers/sampler.py", line 152, in forward',
        "probs[torch.arange(n), batch_next_token_ids]",
    ),
    error="IndexError: index 163840 is out of bounds for dimension 1 with size 163840",
)
OOM_AT_LOAD = _running(
    (f'{_SRT}/layers/logits_processor.py", line 812, in _get_logits', "logits = torch.matmul("),
    error="torch.OutOfMemoryError: " + _out_of_memory("2.50 GiB", "1.07 GiB", "93.89 GiB"),
)
GPU_LOST_KERNEL = (
    "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
)
GPU_LOST = _running(
    (f'{_SRT}/managers/overlap_utils.py", line 97, in wait', "self.copy_done.synchronize()"),
    error="torch.AcceleratorError: CUDA error: unspecified launch failure\n"
    "Search for `cudaErrorLaunchFailure' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
    "group__CUDART__TYPES.html for more information.",
)
