"""The profile of the field report gives its table again, and nothing else sets the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sweeper.engines.emulated.performance import (
    Behaviour,
    accept_length,
    behaviour_of,
    decode_seconds,
    fault_of,
)
from sweeper.engines.emulated.profile import flag_name, load_profile
from sweeper.engines.emulated.simulation import Simulated, simulate

SPACE = Path(__file__).parents[3] / "search_spaces" / "kimi-k2.5-8gpu.yaml"
KIMI = load_profile("kimi-k2.5-8gpu")


def space() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(SPACE.read_text(encoding="utf-8"))
    return loaded


def configuration(row: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The baseline of the file, or one of the rows that it measures first."""
    content = space()
    chosen = {} if row is None else content["search"]["first"][row]
    args = {**content["engine"]["args"], **chosen.get("args", {})}
    env = {name: str(value) for name, value in chosen.get("env", {}).items()}
    return {flag_name(name): value for name, value in args.items()}, env


def level(row: int | None, concurrency: int, **changes: Any) -> Simulated:
    args, env = configuration(row)
    load = space()["workload"]
    return simulate(
        KIMI,
        {**args, **changes},
        env,
        concurrency=concurrency,
        input_tokens=load["input_tokens"],
        output_tokens=load["output_tokens"],
        requests=2 * concurrency,
    )


def peak(row: int | None) -> tuple[float, int]:
    """The highest throughput of all levels of the file, and where."""
    return max((level(row, c).output_throughput, c) for c in space()["workload"]["concurrency"])


@pytest.mark.parametrize(
    ("row", "single", "highest", "length"),
    [
        (None, 63.6, 2370, 1.0),
        (0, 27.0, None, 1.0),
        (1, 62.9, 849, 1.65),
        (2, 40.8, 597, 1.0),
    ],
    ids=["base", "CUDA graphs off", "drafter of another model", "own drafter"],
)
def test_the_table_of_the_field_report(
    row: int | None, single: float, highest: float | None, length: float
) -> None:
    alone = level(row, 1)
    assert alone.output_throughput == pytest.approx(single, rel=KIMI.noise)
    assert alone.accept_length == pytest.approx(length, abs=0.01)
    if highest is not None:
        assert peak(row)[0] == pytest.approx(highest, rel=KIMI.noise)


def test_the_base_has_its_peak_at_128() -> None:
    assert peak(None)[1] == 128


@pytest.mark.parametrize(("row", "highest"), [(1, 849), (2, 597)])
def test_the_silent_cap_gives_the_same_peak(row: int, highest: float) -> None:
    # In the field report the limit was not given, and nobody saw that it was 48.
    held = level(row, 128, max_running_requests=None)
    assert held.most_running == 48
    assert held.output_throughput == pytest.approx(highest, rel=3 * KIMI.noise)
    assert held.ttft_mean > 10  # most of them wait


def test_of_the_six_variables_two_do_something() -> None:
    args, all_six = configuration(3)
    base = level(None, 1).output_throughput

    def gain(**env: str) -> float:
        found = simulate(
            KIMI, args, env, concurrency=1, input_tokens=512, output_tokens=256, requests=1
        )
        return found.output_throughput / base - 1

    assert 0.02 < gain(NCCL_PROTO="LL") < 0.05
    assert 0.01 < gain(NCCL_P2P_LEVEL="SYS") < 0.04
    nothing = ("NCCL_ALGO", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_NTHREADS")
    assert abs(gain(**{name: all_six[name] for name in nothing})) < 0.001
    assert 0.04 < gain(**all_six) < 0.08


def test_the_noise_of_a_run_stays_near_that_of_the_profile() -> None:
    args, env = configuration(None)
    runs = [
        simulate(
            KIMI,
            args,
            env,
            concurrency=1,
            input_tokens=512,
            output_tokens=256,
            requests=1,
            noise=KIMI.noise,
            seed=seed,
        ).output_throughput
        for seed in range(12)
    ]
    assert len(set(runs)) == len(runs)
    assert all(run == pytest.approx(63.6, rel=4 * KIMI.noise) for run in runs)


def test_the_knee() -> None:
    throughput = {c: level(None, c, max_running_requests=None) for c in (1, 32, 128, 160, 320)}
    speeds = {c: found.output_throughput for c, found in throughput.items()}
    assert speeds[1] < speeds[32] < speeds[128]
    assert speeds[160] == pytest.approx(speeds[128], rel=0.03)  # flat
    assert speeds[320] < speeds[160]  # and down, since the cache is full
    assert throughput[320].ttft_mean > 4 * throughput[160].ttft_mean
    assert throughput[320].retractions > 0
    assert throughput[320].most_running < 320


def kimi(**args: Any) -> Behaviour:
    return behaviour_of(KIMI, args, {})


def test_the_limit_of_running_requests() -> None:
    assert kimi().max_running_requests == 2048
    assert kimi(max_running_requests=64).max_running_requests == 64
    assert kimi(max_total_tokens=200).max_running_requests == 100
    held = kimi(speculative_algorithm="EAGLE3")
    assert held.max_running_requests == 48
    assert held.settings["max_running_requests"] == 48
    assert "48" in held.notes[0]
    assert (
        kimi(speculative_algorithm="EAGLE3", max_running_requests=128).max_running_requests == 128
    )


def test_what_silently_comes_out() -> None:
    assert kimi().settings["attention_backend"] == "triton"
    assert "attention_backend" not in kimi(attention_backend="flashinfer").settings
    chain = kimi(
        speculative_algorithm="EAGLE3",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=8,
    )
    assert chain.settings["speculative_num_draft_tokens"] == 4
    assert kimi(speculative_algorithm="NEXTN").settings["speculative_algorithm"] == "EAGLE"
    ngram = kimi(speculative_algorithm="NGRAM", speculative_eagle_topk=1)
    assert ngram.settings["speculative_eagle_topk"] == 10


def test_memory() -> None:
    assert kimi(mem_fraction_static=0.8).kv_tokens == pytest.approx(80_000, rel=0.01)
    assert fault_of(KIMI, {"mem_fraction_static": 0.7}, {}) == "not_enough_memory_for_kv"


@pytest.mark.parametrize(
    ("profile", "args", "env", "fault"),
    [
        ("kimi-k2.5-8gpu", {}, {}, ""),
        ("kimi-k2.5-8gpu", {"attention_backend": "trtllm_mla"}, {}, "backend_not_for_gpu"),
        ("kimi-k2.5-8gpu", {}, {"NCCL_ALGO": "Tree"}, "nccl_invalid_usage"),
        ("crashy", {"attention_backend": "flashinfer"}, {}, ""),
        (
            "crashy",
            {"attention_backend": "flashinfer", "speculative_eagle_topk": 4},
            {},
            "forbidden_by_engine",
        ),
        ("crashy", {"mem_fraction_static": 0.93}, {}, "oom_under_load"),
        ("crashy", {"mem_fraction_static": 0.97}, {}, "oom_kv_pool"),
    ],
)
def test_configurations_that_fail(
    profile: str, args: dict[str, Any], env: dict[str, str], fault: str
) -> None:
    assert fault_of(load_profile(profile), args, env) == fault


@pytest.mark.parametrize("name", ["kimi-k2.5-8gpu", "flat", "crashy"])
def test_faults_of_profiles_exist(name: str) -> None:
    from sweeper.engines.emulated.faults import catalog

    faults = {rule.fault for rule in load_profile(name).rules} - {""}
    assert faults <= set(catalog())


def test_flat_is_flat() -> None:
    flat = load_profile("flat")
    plain = behaviour_of(flat, {"max_running_requests": 9}, {}).numbers
    switched = {
        "attention_backend": "flashinfer",
        "disable_cuda_graph": True,
        "speculative_algorithm": "EAGLE3",
        "max_running_requests": 9,
    }
    assert behaviour_of(flat, switched, {"NCCL_PROTO": "LL"}).numbers == plain


@pytest.mark.parametrize(
    ("acceptance", "steps", "topk", "length"),
    [(0.0, 3, 1, 1.0), (1.0, 3, 1, 4.0), (0.5, 1, 1, 1.5), (0.5, 2, 1, 1.75)],
)
def test_accept_length(acceptance: float, steps: int, topk: int, length: float) -> None:
    assert accept_length(acceptance, steps, topk) == pytest.approx(length)


def test_more_guesses_are_right_more_often() -> None:
    assert accept_length(0.5, 3, 1) < accept_length(0.5, 3, 4) < 4


def test_no_step_is_shorter_than_the_launch_of_its_kernels() -> None:
    numbers = kimi(disable_cuda_graph=True).numbers
    for requests in (1, 32):
        assert decode_seconds(numbers, requests, 100) == pytest.approx(0.0369)
    assert decode_seconds(numbers, 128, 100) > 0.0369
