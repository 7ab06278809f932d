"""A space that the installed SGLang or this machine cannot run is refused before any start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sweeper.engines.sglang.check import active_on, check
from sweeper.engines.sglang.parser import Flag, InstalledParser, installed_parser
from sweeper.spec.load import load_space
from sweeper.spec.parameters import Parameter
from sweeper.spec.problems import Problem
from sweeper.spec.schema import SpaceFile

TP = Flag("tp_size", "one", default=1)
FDFO = Flag("dllm_fdfo", "nothing", default=True, bare=True)
TF32 = Flag("enable_tf32_matmul", "nothing", bare=True)
PARSER = InstalledParser(
    {"sglang": "0.5.23"},
    {
        "tp-size": TP,
        "tensor-parallel-size": TP,
        "dllm-fdfo": FDFO,
        "no-dllm-fdfo": FDFO,
        "enable-tf32-matmul": TF32,
        "no-enable-tf32-matmul": TF32,
        "attention-backend": Flag(
            "attention_backend", "one", ("flashinfer", "torch_native", "triton")
        ),
        "decode-attention-backend": Flag(
            "decode_attention_backend", "one", ("flashinfer", "torch_native", "triton")
        ),
        "cuda-graph-bs-decode": Flag("cuda_graph_bs_decode", "many"),
        "cuda-graph-bs-prefill": Flag("cuda_graph_bs_prefill", "many"),
        "cuda-graph-config": Flag("cuda_graph_config", "one"),
        "disable-radix-cache": Flag("disable_radix_cache", "nothing", default=False, bare=True),
        "lora-target-modules": Flag("lora_target_modules", "many", ("all", "q_proj"), bare=True),
        "mem-fraction-static": Flag("mem_fraction_static", "one"),
        "model-checksum": Flag("model_checksum", "one", bare=True),
        "page-size": Flag("page_size", "one", ("1", "16", "32")),
        "random-seed": Flag("random_seed", "one"),
        "speculative-algorithm": Flag("speculative_algorithm", "one"),
        "speculative-draft-model": Flag("speculative_draft_model_path", "one"),
        "speculative-num-steps": Flag("speculative_num_steps", "one"),
    },
)


def problems(
    args: dict[str, Any] | None = None,
    fixed: dict[str, Any] | None = None,
    baseline: dict[str, Any] | None = None,
    device: str = "cuda",
    env: dict[str, Any] | None = None,
) -> list[Problem]:
    space = SpaceFile.model_validate(
        {
            "name": "demo",
            "model": "embedded",
            "engine": {"args": fixed or {}},
            "space": {"args": args or {}, "env": {"NCCL_PROTO": ["LL"]} if env is None else env},
            "baseline": {"args": baseline or {}},
        }
    )
    return check(space, PARSER, device)


def only(found: list[Problem]) -> Problem:
    assert len(found) == 1, found
    return found[0]


def test_a_good_space() -> None:
    found = problems(
        args={
            "attention-backend": ["unset", "flashinfer", "triton"],
            "disable-radix-cache": [False, True],
            "page-size": [1, 16],
            "mem-fraction-static": {"float": {"low": 0.5, "high": 0.9}},
            "model-checksum": [True, "/sums"],
        },
        fixed={
            "tensor-parallel-size": "auto",
            "random-seed": 1,
            "speculative-algorithm": False,
            "cuda-graph-bs-decode": [1, 2],
            "cuda-graph-config": {"decode": {"backend": "full"}},
            "lora-target-modules": ["q_proj"],
        },
        baseline={"attention-backend": "triton", "page-size": "unset"},
    )
    assert found == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("atention-backend", 'SGLang 0.5.23 has no flag "atention-backend"; did you mean'),
        ("attention_backend", 'did you mean "attention-backend"?'),
        # argparse would take this one.
        ("mem-frac", 'only the beginning of a flag; did you mean "mem-fraction-static"?'),
        # It would call this one ambiguous.
        ("cuda-graph-bs", 'has no flag "cuda-graph-bs"'),
        ("zzzz", 'SGLang 0.5.23 has no flag "zzzz"'),
    ],
)
def test_unknown_names(name: str, words: str) -> None:
    searched = only(problems(args={name: [1]}, baseline={name: 1}))
    assert words in searched.what
    assert searched.location == ("space", "args", name)
    fixed = only(problems(fixed={name: 1}))
    assert words in fixed.what
    assert fixed.location == ("engine", "args", name)


def test_an_ambiguous_beginning_shows_what_begins_so() -> None:
    advice = only(problems(fixed={"cuda-graph-bs": 1})).advice
    assert advice == "beginning with it: cuda-graph-bs-decode, cuda-graph-bs-prefill"


def test_unknown_even_where_it_is_not_active() -> None:
    """The same file runs on the node: what is wrong there is told here."""
    found = problems(args={"bad-flag": {"choices": [1], "when": {"device": "cuda"}}}, device="cpu")
    assert "bad-flag" in only(found).what


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("attention-backend", "flashinfr", 'did you mean "flashinfer"?'),
        ("page-size", 17, "17 is not a value of this flag"),
        ("disable-radix-cache", 1, "takes no value, found 1"),
        ("disable-radix-cache", "yes", "takes no value, found 'yes'"),
        ("attention-backend", True, "needs a value, not true"),
        ("cuda-graph-bs-decode", True, "needs a value, not true"),
        ("dllm-fdfo", False, "without it SGLang takes true"),
    ],
)
def test_wrong_values(name: str, value: Any, words: str) -> None:
    good = {"attention-backend": "triton", "page-size": 1}.get(name, "unset")
    places: list[dict[str, Any]] = [
        {"args": {name: [good, value]}},
        {"fixed": {name: value}},
        {"args": {name: [good]}, "baseline": {name: value}},
    ]
    for place, section in zip(places, ("space", "engine", "baseline"), strict=True):
        problem = only(problems(**place))
        assert words in problem.what
        assert problem.location == (section, "args", name)


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"page-size": [1, 16]}, "takes one value, found a list"),
        ({"lora-target-modules": ["q_proj", "w"]}, "'w' is not a value"),
        ({"page-size": None}, "no value"),
        ({"random-seed": "unset"}, 'cannot be "unset"'),
        ({"disable-radix-cache": {"a": 1}}, "takes no value"),
    ],
)
def test_wrong_fixed_values(fixed: dict[str, Any], words: str) -> None:
    assert words in only(problems(fixed=fixed)).what


def test_false_in_a_space_is_not_unset() -> None:
    problem = only(problems(args={"attention-backend": [False, "triton"]}))
    assert "needs a value, not false" in problem.what
    assert '"unset"' in problem.advice


def test_switching_off_what_is_on_by_default() -> None:
    problem = only(problems(fixed={"dllm-fdfo": False}))
    assert "no-dllm-fdfo" in problem.advice
    assert problems(fixed={"no-dllm-fdfo": True, "enable-tf32-matmul": False}) == []


@pytest.mark.parametrize(
    ("name", "span", "words"),
    [
        ("page-size", {"int": {"low": 16, "high": 32, "step": 16}}, None),
        ("page-size", {"int": {"low": 16, "high": 10**12}}, "17 is not a value"),
        ("page-size", {"float": {"low": 1, "high": 2}}, "takes no range"),
        ("disable-radix-cache", {"int": {"low": 0, "high": 1}}, "takes no value, found a range"),
        ("random-seed", {"int": {"low": 0, "high": 10**12}}, None),
    ],
)
def test_ranges(name: str, span: dict[str, Any], words: str | None) -> None:
    found = problems(args={name: span})
    if words is None:
        assert found == []
    else:
        assert words in only(found).what


def test_one_setting_under_two_names() -> None:
    problem = only(problems(args={"tp-size": [1, 2]}, fixed={"tensor-parallel-size": "auto"}))
    assert problem.location == ("engine", "args", "tensor-parallel-size")
    assert problem.what == 'the same setting as "tp-size" in space.args'
    assert only(problems(fixed={"tp-size": 1, "tensor-parallel-size": 1})).location[0] == "engine"
    assert only(problems(args={"tp-size": [1], "tensor-parallel-size": [1]}))
    assert only(problems(args={"enable-tf32-matmul": [True], "no-enable-tf32-matmul": [True]}))


def test_two_names_that_never_meet() -> None:
    assert problems(fixed={"tp-size": False, "tensor-parallel-size": 2}) == []
    by_device = {
        "tp-size": {"choices": [1], "when": {"device": "cuda"}},
        "tensor-parallel-size": {"choices": [2], "when": {"device": "cpu"}},
    }
    assert problems(args=by_device) == []
    three_states = {
        "enable-tf32-matmul": [False, True],
        "no-enable-tf32-matmul": {
            "choices": [False, True],
            "when": {"args.enable-tf32-matmul": False},
        },
    }
    assert problems(args=three_states) == []


@pytest.mark.parametrize("name", ["speculative-algorithm", "speculative-draft-model"])
def test_speculation_needs_a_gpu(name: str) -> None:
    searched = {"choices": ["unset", "NGRAM"]}
    problem = only(problems(args={name: searched}, device="cpu"))
    assert "sgl_kernel" in problem.what
    assert "when: {device: cuda}" in problem.advice
    problem = only(problems(fixed={name: "NGRAM"}, device="cpu"))
    assert "without_gpu.engine.args" in problem.advice
    assert only(problems(args={name: {"int": {"low": 1, "high": 2}}}, device="cpu"))
    assert problems(args={name: searched}) == []
    assert problems(args={name: ["unset"]}, device="cpu") == []
    assert problems(fixed={name: False}, device="cpu") == []


def test_what_depends_on_speculation_is_not_told_again() -> None:
    args = {
        "speculative-algorithm": ["unset", "NGRAM"],
        "speculative-num-steps": {
            "choices": [3],
            "when": {"args.speculative-algorithm": "NGRAM"},
        },
    }
    problem = only(problems(args=args, device="cpu"))
    assert problem.location == ("space", "args", "speculative-algorithm")


def test_speculation_that_cannot_be_active_is_fine_on_a_cpu() -> None:
    args = {
        "speculative-algorithm": {"choices": ["NGRAM"], "when": {"device": "cuda"}},
        # Its parent never exists here, so neither does it.
        "speculative-num-steps": {
            "choices": [3],
            "when": {"args.speculative-algorithm": "NGRAM"},
        },
        "disable-radix-cache": [False, True],
    }
    assert problems(args=args, device="cpu") == []


@pytest.mark.parametrize("name", ["attention-backend", "decode-attention-backend"])
def test_attention_backends_need_a_gpu(name: str) -> None:
    problem = only(problems(args={name: ["unset", "torch_native", "triton"]}, device="cpu"))
    assert problem.what == "without a GPU only torch_native runs, not triton"
    assert only(problems(fixed={name: "flashinfer"}, device="cpu")).location[0] == "engine"
    assert problems(args={name: ["unset", "torch_native"]}, device="cpu") == []
    on_gpus = {"choices": ["triton"], "when": {"device": "cuda"}}
    assert problems(args={name: on_gpus}, device="cpu") == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_nothing_to_search_here(device: str) -> None:
    other = "cpu" if device == "cuda" else "cuda"
    args = {
        "disable-radix-cache": {"choices": [True, False], "when": {"device": other}},
        "page-size": {"choices": [1], "when": {"args.disable-radix-cache": True}},
    }
    problem = only(problems(args=args, env={}, device=device))
    assert problem.what.startswith("nothing to search on this machine")
    assert problems(args=args, env={}, device=other) == []
    env = {"NCCL_PROTO": {"choices": ["LL"], "when": {"device": device}}}
    assert problems(args=args, env=env, device=device) == []


def test_active_on() -> None:
    assert active_on(Parameter(choices=[1]), "cpu")
    assert not active_on(Parameter(choices=[1], when={"device": "cuda"}), "cpu")
    assert active_on(Parameter(choices=[1], when={"device": ["cuda", "cpu"]}), "cpu")


@pytest.mark.engine
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_our_own_spaces_fit_the_installed_engine(device: str) -> None:
    parser = installed_parser(Path(sys.executable))
    files = sorted((Path(__file__).parents[3] / "search_spaces").glob("*.yaml"))
    assert files
    for file in files:
        found = check(load_space(file, device=device).space, parser, device)
        # Some of them are for a node with GPUs only, and are refused here for that alone.
        wrong = [problem for problem in found if "without a GPU" not in problem.what]
        assert wrong == [], file.name
