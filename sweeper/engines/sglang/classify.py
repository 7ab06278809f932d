"""Why a server failed: a pure decision over what was seen, its log and how it ended.

The root cause is wanted, not its echo. A rank that runs out of memory makes its
neighbours print NCCL errors, and the launcher tells of a dead child. So every sign
has a level (``failures.toml`` says what they mean); within a traceback the better
level wins, and between tracebacks and lines a cause wins over a death from outside,
that over the first of the errors, and all of them over an echo.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.engines.sglang.failures import (
    Blame,
    FailureClass,
    FailureTable,
    Level,
    Sign,
    failure_table,
)
from sweeper.engines.sglang.log_text import Log

_HALF = 8 << 20
_LINES_OF_EVIDENCE = 8
_LONGEST_EVIDENCE = 500
_LONGEST_WHAT = 300

# Within one traceback in this order; between tracebacks, what shares a number goes by
# its place in the log.
_LEVELS: dict[Level, int] = {"cause": 0, "death": 1, "error": 2, "last": 2, "echo": 3}
_ORDER: tuple[Level, ...] = ("cause", "death", "error", "last", "echo")

# These say what is wrong whatever the log says, and whether the server lives or not.
_NEVER_EXPLAINED = frozenset(
    {"refused_requests", "launch_failed", "not_stopped", "sweeper_error", "gpu_throttled"}
)


@dataclass(frozen=True)
class Evidence:
    """All that is known of a server that failed.

    Args:
        seen: what the sweeper saw from outside, a class such as "hung_start"; empty when
            the server simply died.
        what: that in words.
        lines: the whole log of all ranks, as :func:`read_lines` gives it.
        exit_status: as ``Popen.returncode``: negative is a signal, None while it lives.
        stage: how far it had come; "serving" once it was ready.
        kernel: what the kernel recorded since the launch (:mod:`sweeper.machine.kernel_events`).
        schedulers_alive: whether all its ranks live; None when that is not known.
    """

    seen: str
    what: str
    lines: Sequence[str]
    exit_status: int | None
    stage: str
    kernel: Sequence[str] = ()
    schedulers_alive: bool | None = None


@dataclass(frozen=True)
class Classified:
    """The class of a failure, and what decided.

    Args:
        kind: one of the classes of ``failures.toml``.
        blame: who is to blame.
        retry: how many more tries make sense.
        what: what happened, in words.
        evidence: the lines of the log, or the records of the kernel, that decided.
        advice: one sentence that says what to do.
        stage: where in its life the server, or the rank that failed, stood.
    """

    kind: str
    blame: Blame
    retry: int
    what: str
    evidence: tuple[str, ...]
    advice: str
    stage: str


@dataclass(frozen=True)
class _Hit:
    """A sign that was found; ``line`` is None where the log has no part in it."""

    failure: FailureClass
    sign: Sign
    number: int
    block: int
    line: int | None
    stage: str

    @property
    def specificity(self) -> tuple[int, bool, int]:
        return _ORDER.index(self.sign.level), self.sign.within is None, self.number


def classify(evidence: Evidence) -> Classified:
    """The class of a failure. Never raises, and always finds one."""
    table = failure_table()
    classes = {failure.kind: failure for failure in table.failure}
    log = Log(evidence.lines, table)
    hits = list(_hits(evidence, table, log))
    if evidence.seen in _NEVER_EXPLAINED:
        hits = []
    elif evidence.exit_status is None and evidence.schedulers_alive is not False:
        # A living server may have printed what is only ever a consequence elsewhere.
        hits = [hit for hit in hits if hit.sign.level != "echo"]
    best = _best(hits)
    failure = best.failure if best else classes[_without_words(evidence, classes)]
    found = [hit for hit in hits if best and hit.failure is failure and hit.block == best.block]
    return Classified(
        kind=failure.kind,
        blame=failure.blame,
        retry=failure.retry,
        what=_what(evidence, log, best),
        evidence=_lines(evidence, log, found),
        advice=failure.advice,
        stage=(best.stage if best else "") or evidence.stage,
    )


def port_is_taken(line: str) -> bool:
    """Whether a line of a log says that the server's port is in use: it can never be ready."""
    signs = next(f for f in failure_table().failure if f.kind == "port_in_use").sign
    return any(sign.line is not None and bool(sign.line.search(line)) for sign in signs)


def read_lines(path: Path) -> list[str]:
    """The lines of a log, whatever is in it.

    A progress bar's carriage returns end lines too, bytes that are no text are
    replaced, and of a huge log the first and the last 8 MiB are read.

    Returns:
        no lines for a log that cannot be read.
    """
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            data = stream.read(_HALF if size > 2 * _HALF else -1)
            if size > 2 * _HALF:
                left_out = size - 2 * _HALF
                stream.seek(size - _HALF)
                data += f"\n... {left_out} bytes left out ...\n".encode() + stream.read(_HALF)
    except OSError:
        return []
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _hits(evidence: Evidence, table: FailureTable, log: Log) -> Iterator[_Hit]:
    signs = [(failure, sign) for failure in table.failure for sign in failure.sign]
    begin = log.ready if evidence.stage == "serving" else -1
    for number, (failure, sign) in enumerate(signs):
        if sign.line is None and _fits(sign, evidence, evidence.stage):
            # A record of the kernel that is a cause in itself needs no words in the log.
            block = -1 if sign.level == "cause" else len(log.lines)
            yield _Hit(failure, sign, number, block, None, evidence.stage)
    matching: dict[tuple[bool, str], list[int]] = {}
    # What was printed before it served well did no harm.
    for index in log.alarming(after=begin):
        line, message = log.lines[index], log.message(index)
        if message not in matching:
            # The same words come again and again, with another time in front.
            matching[message] = [
                n for n, (_, s) in enumerate(signs) if s.line and s.line.search(line)
            ]
        block = log.block(index)
        stage = "serving" if evidence.stage == "serving" else log.stage(block) or evidence.stage
        for number in matching[message]:
            failure, sign = signs[number]
            if (
                _fits(sign, evidence, stage)
                and not (sign.before_the_end and index > log.end)
                and not (sign.within and not sign.within.search(log.text(index)))
                and not (sign.unless and sign.unless.search(log.text(index)))
            ):
                yield _Hit(failure, sign, number, block, index, stage)


def _fits(sign: Sign, evidence: Evidence, stage: str) -> bool:
    return (
        (not sign.stages or stage in sign.stages)
        and (not sign.seen or evidence.seen in sign.seen)
        and (not sign.exit_status or evidence.exit_status in sign.exit_status)
        and (sign.kernel is None or any(map(sign.kernel.search, evidence.kernel)))
    )


def _best(hits: Iterable[_Hit]) -> _Hit | None:
    blocks: dict[int, _Hit] = {}
    for hit in hits:
        other = blocks.get(hit.block)
        if other is None or hit.specificity < other.specificity:
            blocks[hit.block] = hit
    return min(blocks.values(), key=lambda hit: (_LEVELS[hit.sign.level], hit.block), default=None)


def _without_words(evidence: Evidence, classes: Iterable[str]) -> str:
    """The class where neither the log nor the kernel explains anything."""
    seen = evidence.seen
    if seen in _NEVER_EXPLAINED or seen == "wrong_server":
        return seen
    if evidence.exit_status is not None:
        return "crashed" if _signal(evidence.exit_status) else "exited"
    if evidence.schedulers_alive is False:
        return "dead_behind_http"
    if seen.startswith("warmup"):
        return "warmup_failed"
    if not seen:
        return "exited"
    return seen if seen in classes else "sweeper_error"


def _signal(status: int) -> str:
    """The name of the signal that ended it, also where a shell told of it as 128 + number."""
    number = -status if status < 0 else status - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {-status}" if status < 0 else ""


def _what(evidence: Evidence, log: Log, best: _Hit | None) -> str:
    status = evidence.exit_status
    words = evidence.what.strip()
    if not words and status is None:
        words = evidence.seen.replace("_", " ") or "the server is gone"
    if status is not None and (not words or evidence.seen):
        name = _signal(status)
        ended = f"ended by {name}" if name else f"ended with status {status}"
        words = f"{words}; the server {ended}" if words else f"the server {ended}"
    told = ""
    if best and best.line is not None:
        told = log.headline(best.line)
    elif best and best.sign.kernel:
        told = next((one for one in evidence.kernel if best.sign.kernel.search(one)), "")
    return f"{words}: {told[:_LONGEST_WHAT]}" if told else words


def _lines(evidence: Evidence, log: Log, found: Sequence[_Hit]) -> tuple[str, ...]:
    """What decided; the end of the log where nothing in it did."""
    indices = {hit.line for hit in found if hit.line is not None}
    if indices:
        indices |= {log.block(min(indices)), log.last_of_block(min(indices))}
    lines = [log.lines[index] for index in sorted(indices)]
    kernel = [hit.sign.kernel for hit in found if hit.sign.kernel]
    lines += [one for one in evidence.kernel if any(sign.search(one) for sign in kernel)]
    if not lines:
        lines = [line for line in log.lines[-200:] if line.strip()][-_LINES_OF_EVIDENCE:]
    stripped = (re.sub(r"\s+", " ", line).strip()[:_LONGEST_EVIDENCE] for line in lines)
    return tuple(dict.fromkeys(line for line in stripped if line))[:_LINES_OF_EVIDENCE]
