"""The page about the classes of failure, made from ``failures.toml``.

``python -m sweeper.engines.sglang.failures_page`` writes it into the checkout that
this module belongs to; a test fails while the file there is older than the table.
"""

from __future__ import annotations

from pathlib import Path

from sweeper.engines.sglang.failures import failures

ROOT = Path(__file__).resolve().parents[3]
PAGE = Path("docs/failures.md")

_INTRO = """\
# Why a server failed

Made from `sweeper/engines/sglang/failures.toml` by `python -m sweeper.engines.sglang.failures_page`;
do not edit it by hand.

A trial without a result has a class, the lines that decided, the stage of the start and the
end of the log: in `trials.jsonl`, and in the summary. What each class is recognised by is in
the table that this page is made from.

- **Blame**: a *configuration* that is to blame is never tried again, and the sampler is told
  to keep away from its like. When the *machine* is to blame, the trial is begun again on
  other ports; the sampler is told nothing. What is *unknown* is tried once more, and is the
  configuration's if it fails in the same way again.
- **Again**: how many more tries make sense; `engine.start.retries` in the file is the limit.
- Three trials in a row that fail by the machine's fault end the sweep.

| class | blame | again | what to do | source |
| --- | --- | ---: | --- | --- |
"""


def page() -> str:
    """The whole page, as Markdown."""
    rows = [
        f"| `{each.kind}` | {each.blame} | {each.retry} | {_cell(each.advice)} | {_cell(each.source)} |"
        for each in failures().values()
    ]
    return _INTRO + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page."""
    from sweeper.records.files import write_atomically

    write_atomically(ROOT / PAGE, page())


if __name__ == "__main__":
    main()
