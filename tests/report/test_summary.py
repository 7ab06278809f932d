"""The summary says what the record says, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sweeper.records.events import Failure
from sweeper.records.sweep import Sweep
from sweeper.report.summary import summary

Make = Callable[..., Any]


def rows(text: str) -> dict[str, list[str]]:
    """Cells of the table by trial number, split as GitHub does: at every pipe not escaped."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| ") and (number := re.search(r"^\| (?:\*\*best\*\* )?(\d+)", line)):
            found[number[1]] = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    return found


def verdict(text: str) -> str:
    return text.split("\n\n")[1]


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0]


def test_the_verdict_names_the_best_and_its_gain(whole: Any) -> None:
    said = verdict(summary(whole.sweep))
    assert "trial 2, `better`" in said
    assert "single stream 55.0 tok/s (+10.0 % against the baseline)" in said
    assert "peak 198.0 tok/s at C=8 (-1.0 % against the baseline)" in said
    assert "measured once" in said
    assert "cut short" not in said
    assert "Fewer" not in said


def test_the_baseline_comes_first_then_by_score_and_a_failure_last(whole: Any) -> None:
    table = rows(summary(whole.sweep))
    assert list(table) == ["0", "2", "1", "3"]
    assert table["0"] == ["0, baseline: `engine defaults`", "50.0", "200.0 (C=8)"]
    assert table["2"] == ["**best** 2: `better`", "55.0 (+10.0 %)", "198.0 (C=8, -1.0 %)"]
    assert table["1"] == ["1: `worse`", "40.0 (-20.0 %)", "190.0 (C=8, -5.0 %)"]
    assert table["3"] == ["3: `fast but dead` (failed: oom)", "500.0", "5,000 (C=8)"]


def test_the_baseline_can_win(story: Make) -> None:
    told = story(trials=1).trial(0, {1: 50.0, 8: 200.0}, 1.0).trial(1, {1: 49.0, 8: 199.0}, 0.98)
    said = verdict(summary(told.over().sweep))
    assert said.startswith("The baseline is the best")
    assert "of 1 other configurations that completed, none scored higher" in said


def test_a_baseline_alone_is_no_victory(story: Make) -> None:
    told = story(trials=1).trial(0, {1: 50.0, 8: 200.0}, 1.0).failed(1).over()
    assert "compared with nothing" in verdict(summary(told.sweep))


@pytest.mark.parametrize("levels", [{}, {1: 80.0}, {1: 80.0, 8: 300.0}])
def test_a_failed_baseline_is_not_compared_with(story: Make, levels: dict[int, float]) -> None:
    told = story(trials=1).start(0)
    for concurrency, speed in levels.items():
        told.level(0, concurrency, speed)
    told.end(0, "failed", failure=Failure(kind="died", what="x"))
    text = summary(told.trial(1, {1: 49.0, 8: 199.0}, 1.0).over().sweep)
    assert "trial 1" in verdict(text)
    assert "nothing to compare it with: the baseline failed (died)" in verdict(text)
    assert "%" not in " ".join(rows(text)["1"])


def test_nothing_completed(story: Make) -> None:
    said = verdict(summary(story().failed(0).failed(1).failed(2, kind="timeout").over().sweep))
    assert "no best configuration: 3 failed. Failures: oom 2 times, timeout." in said


def test_nothing_started(story: Make) -> None:
    assert "No trial was started" in verdict(summary(story().over("stopped").sweep))
    assert "has no beginning" in summary(Sweep())


def test_a_sweep_that_has_not_ended(story: Make) -> None:
    said = verdict(summary(story().trial(0, {1: 50.0, 8: 200.0}, 1.0).start(1).sweep))
    assert "**The sweep has not ended**" in said
    assert "1 of 4 trials" in said


def test_a_sweep_that_was_interrupted(story: Make) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).start(1).end(1, "interrupted")
    said = verdict(summary(told.over("interrupted by the user").sweep))
    assert "**The sweep was cut short** (interrupted by the user): 1 of 4 trials" in said


def test_a_space_that_was_tried_out_is_no_alarm(story: Make) -> None:
    told = story(trials=30).trial(0, {1: 50.0, 8: 200.0}, 1.0).trial(1, {1: 51.0, 8: 200.0}, 1.1)
    said = verdict(summary(told.over("every candidate of the space was tried").sweep))
    assert "than allowed (every candidate of the space was tried): 2 of 31 trials" in said
    assert "cut short" not in said


def test_an_interruption_is_told_even_between_two_trials(story: Make) -> None:
    told = story(trials=0).trial(0, {1: 50.0, 8: 200.0}, 1.0)
    assert "**The sweep was cut short**" in verdict(summary(told.over("interrupted").sweep))


def test_missing_is_not_zero(story: Make) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).failed(1)
    told.start(2).level(2, 1, None).end(2, "pruned")
    table = rows(summary(told.sweep))
    assert table["1"][1:] == ["-", "-"]
    assert table["2"][1:] == ["-", "-"]


def test_the_peak_of_a_trial_cut_short_is_not_compared(story: Make) -> None:
    told = story(levels=[1, 8, 32]).trial(0, {1: 50.0, 8: 200.0, 32: 400.0}, 1.0)
    told.start(1).level(1, 1, 45.0).end(1, "pruned")
    told.start(2).level(2, 1, 45.0).level(2, 8, 210.0).end(2, "pruned")
    table = rows(summary(told.sweep))
    assert table["1"][1:] == ["45.0 (-10.0 %)", "-"]
    assert table["2"][1:] == ["45.0 (-10.0 %)", "at least 210.0 (C=8)"]


def test_a_measured_zero_is_a_zero(story: Make) -> None:
    told = story().trial(0, {1: 0.0, 8: 200.0}, 1.0).trial(1, {1: 1.0, 8: 0.0}, 0.1)
    table = rows(summary(told.sweep))
    assert table["0"][1:] == ["0.0", "200.0 (C=8)"]
    assert table["1"][1] == "1.0"  # by how much it is above zero cannot be said


@pytest.mark.parametrize(
    ("speed", "said"), [(50.01, "+0.0 %"), (49.99, "+0.0 %"), (49.9, "-0.2 %"), (50.1, "+0.2 %")]
)
def test_signs(story: Make, speed: float, said: str) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).trial(1, {1: speed, 8: 200.0}, 1.0)
    assert f"({said})" in rows(summary(told.sweep))["1"][1]


def test_acceptance_only_where_a_trial_is_speculative(story: Make, whole: Any) -> None:
    assert "acceptance" not in summary(whole.sweep)
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0)
    told.trial(1, {1: 40.0, 8: 90.0}, 0.6, accept_length=1.647)
    table = rows(summary(told.sweep))
    assert table["0"][3] == "-"
    assert table["1"][3] == "1.65"


@pytest.mark.parametrize("label", ["a|b", r"a\|b", "a`|`b", "*a* _b_ **c**", "<b>x</b> |", "a\nb"])
def test_a_label_cannot_break_the_table(story: Make, label: str) -> None:
    told = (
        story().trial(0, {1: 50.0, 8: 200.0}, 1.0).trial(1, {1: 51.0, 8: 200.0}, 1.1, label=label)
    )
    text = summary(told.sweep)
    cells = rows(text)["1"]
    assert cells[1:] == ["51.0 (+2.0 %)", "200.0 (C=8, +0.0 %)"]
    code = re.fullmatch(r"\*\*best\*\* 1: (?:`([^`\\]+)`|<code>([^`|*<>\\]+)</code>)", cells[0])
    assert code is not None, cells[0]


def test_failures_show_why_and_the_end_of_the_log(story: Make) -> None:
    tail = [f"line {n}" for n in range(20)] + ["\x1b[31mred\x1b[0m", "```", "# no heading"]
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).failed(1, tail=tail, what="bad * value")
    text = section(summary(told.sweep), "Failures")
    assert "**Trial 1**, `NCCL_NTHREADS=1`: oom, at the stage loading weights" in text
    assert ", blamed on the configuration. bad &#42; value" in text
    block = text.partition("\n\n")[2].splitlines()
    assert (block[0], block[-1]) == ("````text", "````")
    assert block[1:-1] == [*(f"line {n}" for n in range(15, 20)), "red", "```", "# no heading"]


def test_broken_constraints(story: Make) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).start(1).level(1, 1, 90.0).level(1, 8, 900.0)
    told.end(1, "infeasible", broken_constraints=["ttft_p95_ms@8 = 310, at most 200"])
    text = summary(told.sweep)
    assert "ttft_p95_ms@8 = 310, at most 200" in section(text, "Broken constraints")
    assert "baseline is the best" in verdict(text)
    assert rows(text)["1"][0].endswith("(infeasible)")
    assert rows(text)["1"][2] == "900.0 (C=8, +350.0 %)"


def test_failed_requests_are_told(story: Make, whole: Any) -> None:
    assert "## Failed requests" not in summary(whole.sweep)
    told = story().start(0).level(0, 8, 50.0, failed_requests=3).end(0)
    assert "3 of 16 at C=8" in section(summary(told.sweep), "Failed requests")


def test_what_is_real(story: Make) -> None:
    on_gpu, on_cpu = summary(story().sweep), summary(story(device="cpu").sweep)
    emulated = summary(story(device="cpu", emulated=True).sweep)
    assert "do not carry over to GPUs" not in on_gpu
    assert "SGLang 0.5.23 itself, on the CPU. No NCCL" in on_cpu
    assert "do not carry over to GPUs" in on_cpu
    assert "EMULATED" not in on_gpu + on_cpu
    assert verdict(emulated).startswith("> **EMULATED")
    assert "itself, on the CPU" not in emulated


def test_environment_is_flat_and_without_the_shell(story: Make) -> None:
    facts = {
        "shell": {"PATH": "/usr/bin"},
        "driver": "580.1",
        "gpu": {"count": 8, "names": ["H200", "H200"], "link": {"kind": "a|b"}},
        "nics": [{"name": "mlx5_0"}],
        "command": ["sweeper", "a b.yaml"],
        "nothing": None,
        "empty": {},
    }
    lines = section(summary(story(environment=facts).sweep), "Environment").splitlines()
    assert lines == [
        "- driver: `580.1`",
        "- gpu.count: `8`",
        "- gpu.names: `H200, H200`",
        "- gpu.link.kind: <code>a&#124;b</code>",
        "- nics.0.name: `mlx5_0`",
        "- command: `sweeper 'a b.yaml'`",
        "- nothing: -",
        "- empty: -",
    ]


def test_no_time_is_told_of_what_did_not_happen(whole: Any, story: Make) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0)
    assert "without a result" not in section(summary(told.sweep), "Counts and time spent")
    assert "without a result" in section(summary(whole.sweep), "Counts and time spent")


def test_time_spent(story: Make) -> None:
    told = story().trial(0, {1: 50.0, 8: 200.0}, 1.0).failed(1).start(2)
    text = section(summary(told.sweep), "Counts and time spent")
    assert "3 trials: 1 complete, 1 running, 1 failed" in text
    assert "All ended trials: 3 min 20 s" in text
    assert "Starting servers: 1 min 0 s (30 %)" in text
    assert "warming up: 22.0 s (11 %)" in text
    assert "Stopping servers: 2.0 s (1 %)" in text
    # The failed trial told no times: its 100 s are not the sweeper's own.
    assert "without a result, beyond the above: 1 min 40 s (50 %)" in text
    assert "in trials that went through: 16.0 s (8 %)" in text
