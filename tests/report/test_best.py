from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from ruamel.yaml import YAML

from sweeper.records.events import ServerLaunched
from sweeper.report.best import best

Make = Callable[..., Any]


def read(text: str | None) -> dict[str, Any]:
    assert text is not None
    loaded = YAML(typ="safe").load(text)
    assert yaml.safe_load(text) == loaded  # YAML 1.1 and 1.2 agree
    return loaded  # type: ignore[no-any-return]


def test_nothing_completed(story: Make) -> None:
    assert best(story().sweep) is None
    assert best(story().failed(0).start(1).sweep) is None


def test_the_best_and_what_it_is_compared_with(whole: Any) -> None:
    found = read(best(whole.sweep))
    assert (found["sweep"], found["trial"], found["label"]) == ("nccl", 2, "better")
    assert (found["score"], found["single_stream"]) == (1.04, 55.0)
    assert (found["peak"], found["peak_concurrency"]) == (198.0, 8)
    assert found["baseline"] == {
        "trial": 0,
        "state": "complete",
        "single_stream": 50.0,
        "peak": 200.0,
        "peak_concurrency": 8,
    }
    assert found["against_baseline_percent"] == {"single_stream": 10.0, "peak": -1.0}
    assert found["emulated"] is False


def test_missing_is_absent(story: Make) -> None:
    found = read(best(story(engine_version=None).start(1).end(1, score=1.0).sweep))
    for name in ("single_stream", "peak", "baseline", "against_baseline_percent", "engine_version"):
        assert name not in found
    assert "null" not in (best(story().start(1).end(1, score=1.0).sweep) or "")


def test_values_and_command_as_they_were(story: Make) -> None:
    told = story(emulated=True)
    values = {"env.NCCL_PROTO": "on", "args.tp": 2, "args.x.y": True, "args.at": "12:30"}
    told.start(0, 'a: "b" # c', values=values)
    command = ["/py", "-m", "sglang.launch_server", "--api-key", "***", "--json", '{"a": "ü" }']
    env = {"HF_TOKEN": "***", "NO": "no", "N": "0x10", "LONG": "word " * 100, "LINE": "a\nb"}
    told.events.append(
        ServerLaunched(trial=0, pid=1, tag="t", port=1, command=command, env=env, log="x")
    )
    text = best(told.end(0, score=1.0).sweep)
    found = read(text)
    assert found["values"] == {
        "env": {"NCCL_PROTO": "on"},
        "args": {"tp": 2, "x.y": True, "at": "12:30"},
    }
    assert found["command"] == command
    assert found["env"] == env
    assert found["label"] == 'a: "b" # c'
    assert found["emulated"] is True
    assert (text or "").startswith("# EMULATED")
