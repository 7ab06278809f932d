"""What ``/server_info`` and ``/model_info`` say: settings as they came out, and that none of it is real."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeper.engines.emulated.performance import Behaviour
from sweeper.engines.emulated.profile import DEFAULT
from sweeper.engines.emulated.scheduler import Tick
from sweeper.engines.emulated.settings import Settings

VERSION = "0.5.23"
"""Of the SGLang that is emulated."""

_LARGEST_GRAPH = 256
# Never told by a server that may be asked by anybody.
_SECRETS = ("api_key", "admin_api_key", "ssl_keyfile_password")


def served_name(settings: Settings) -> str:
    """The name by which the server is known: SGLang takes the path where none is given."""
    args = settings.args
    return str(args.get("served_model_name") or args.get("model_path") or "emulated")


def model_info(settings: Settings) -> dict[str, Any]:
    """The body of ``/model_info``."""
    path = settings.args.get("model_path")
    return {
        "model_path": path,
        "tokenizer_path": settings.args.get("tokenizer_path") or path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "emulated",
        "architectures": ["Emulated"],
        "emulated": True,
    }


def server_info(
    settings: Settings, behaviour: Behaviour, *, status: str, tick: Tick, decode_steps: int
) -> dict[str, Any]:
    """The body of ``/server_info``.

    Args:
        settings: what the server was told.
        behaviour: what came out.
        status: ``starting`` or ``ready``.
        tick: of the last decode line in the log.
        decode_steps: since the start or the last flush.
    """
    resolved = _resolved(settings.args, behaviour)
    state = {
        **resolved,
        "last_gen_throughput": tick.gen_throughput,
        "memory_usage": {
            "weight": 0.0,
            "kvcache": 0.0,
            "token_capacity": behaviour.kv_tokens,
            "graph": {"prefill": 0.0, "decode": 0.0},
        },
        "effective_max_running_requests_per_dp": behaviour.max_running_requests,
        "world_size": int(resolved["tp_size"]),
    }
    if tick.accept_length is not None and decode_steps:
        state["avg_spec_accept_length"] = tick.accept_length
    # One state for each replica, and no replica differs from another.
    replicas = int(settings.args.get("dp_size") or 1)
    return {
        **resolved,
        "launch_command": settings.launch_command,
        "status": status,
        "version": VERSION,
        "emulated": True,
        "emulated_profile": settings.profile or DEFAULT,
        "max_total_num_tokens": behaviour.kv_tokens,
        "max_req_input_len": min(behaviour.numbers.context_length, behaviour.kv_tokens) - 6,
        "kv_events": None,
        "internal_states": [state] * replicas,
    }


def _resolved(args: Mapping[str, Any], behaviour: Behaviour) -> dict[str, Any]:
    largest = int(args.get("cuda_graph_max_bs_decode") or _LARGEST_GRAPH)
    graphs = args.get("cuda_graph_bs_decode") or _batch_sizes(largest)
    decode = {
        "backend": "full" if behaviour.cuda_graphs else "disabled",
        "max_bs": largest,
        "bs": graphs,
    }
    defaults = {
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "device": "cuda",
        "attention_backend": "triton",
        "sampling_backend": "flashinfer",
        "max_running_requests": None,
        "speculative_algorithm": None,
        "disable_cuda_graph": False,
        "disable_custom_all_reduce": False,
        "disable_overlap_schedule": False,
        "num_continuous_decode_steps": 1,
        "stream_interval": 1,
        "page_size": 1,
    }
    given = {name: value for name, value in args.items() if value is not None}
    return {
        **args,
        **defaults,
        **given,
        **behaviour.settings,
        **{name: None for name in _SECRETS if name in args},
        "chunked_prefill_size": behaviour.chunked_prefill_size,
        "mem_fraction_static": float(
            args.get("mem_fraction_static") or behaviour.numbers.mem_fraction_static
        ),
        "cuda_graph_config": {
            "decode": decode,
            "prefill": {"backend": "disabled", "max_bs": behaviour.chunked_prefill_size, "bs": []},
        },
    }


def _batch_sizes(largest: int) -> list[int]:
    sizes = [1, 2, 4, *range(8, largest + 1, 8)]
    return [size for size in sizes if size <= largest]
