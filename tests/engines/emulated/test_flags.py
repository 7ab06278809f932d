"""The command line, with SGLang's own list of flags and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeper.engines.emulated.flags import parse
from sweeper.engines.sglang.parser import flags_of


def option(name: str, **more: Any) -> dict[str, Any]:
    plain = {
        "options": [f"--{name}"],
        "dest": name.replace("-", "_"),
        "takes": "one",
        "bare": False,
        "choices": None,
        "default": None,
        "deprecated": False,
        "number": None,
    }
    return {**plain, **more}


OPTIONS = [
    option("model-path", options=["--model-path", "--model"]),
    option("tp-size", options=["--tp-size", "--tensor-parallel-size"], default=1, number="int"),
    option("attention-backend", choices=["flashinfer", "triton"]),
    option("enable-metrics", takes="nothing", bare=True, default=False),
    option("cuda-graph-bs-decode", takes="many", number="int"),
    option("max-total-tokens"),
    option(
        "overlap",
        options=["--overlap", "--no-overlap"],
        takes="nothing",
        bare=True,
        default=True,
    ),
]


@pytest.fixture
def known(tmp_path: Path) -> Path:
    flags_of(OPTIONS)  # the format is that of the cached parser
    path = tmp_path / "flags.json"
    path.write_text(json.dumps(OPTIONS), encoding="utf-8")
    return path


def test_flags_of_the_installed_parser(known: Path) -> None:
    words = "--model m --tensor-parallel-size 8 --cuda-graph-bs-decode 1 2 --enable-metrics"
    told = parse([*words.split(), "--no-overlap", "--max-total-tokens", "4096"], known)
    assert told == {
        "model_path": "m",
        "tp_size": 8,
        "attention_backend": None,
        "enable_metrics": True,
        "cuda_graph_bs_decode": [1, 2],
        "max_total_tokens": 4096,
        "overlap": False,
    }


def test_a_prefix_is_enough_as_in_sglang(known: Path) -> None:
    assert parse(["--model-path", "m", "--tp", "2"], known)["tp_size"] == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--model-path m --cuda-graph-max-bs 8", "unrecognized arguments: --cuda-graph-max-bs 8"),
        ("--model-path m --attention-backend fa9", "invalid choice: 'fa9'"),
        ("--model-path m --tp-size two", "argument --tp-size/--tensor-parallel-size: invalid int"),
        ("--tp-size 2", "the following arguments are required: --model-path/--model"),
    ],
)
def test_what_argparse_refuses(
    words: str, error: str, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(words.split(), known)
    assert caught.value.code == 2
    assert f"sglang serve: error: {error}" in capsys.readouterr().err.replace(
        "argument --att", "--att"
    ).replace("--attention-backend: ", "")


def test_without_the_list_any_flag_is_taken() -> None:
    words = (
        "--model-path m --tp 4 --port 31000 --enable-metrics --watchdog-timeout 60 "
        "--new-switch --new-value=3 --new-list a b --speculative-draft-model d"
    )
    told = parse(words.split(), None)
    assert told["tp_size"] == 4
    assert told["port"] == 31000
    assert told["watchdog_timeout"] == 60.0
    assert told["new_switch"] is True
    assert told["new_value"] == "3"
    assert told["new_list"] == ["a", "b"]
    assert told["speculative_draft_model_path"] == "d"
    assert told["decode_log_interval"] == 40


def test_a_word_that_belongs_to_no_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--model-path", "m", "stray"], None)
    assert caught.value.code == 2
    assert "unrecognized arguments: stray" in capsys.readouterr().err
