"""The scheduler of a served model: turns the batch's clock in real time, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sweeper.engines.emulated.batching import Batch, Request, Step

_BEHIND = 0.5
"""Seconds that the machine may be late before the lost time is given up instead of made up for."""
_LOOK = 0.1
"""Seconds between two looks whether the schedulers came back to life."""


@dataclass(frozen=True)
class Tick:
    """What the last decode line in the log said.

    Args:
        gen_throughput: tokens per second since the line before.
        accept_length: tokens a step since the start or the last flush; None before the first line.
    """

    gen_throughput: float = 0.0
    accept_length: float | None = None


class Scheduler:
    """Runs the batch, one step after the other; each takes as long as the model says.

    Steps follow each other on a schedule of their own, so that neither a late
    wake-up nor the work of sending makes the server slower than its model.

    Args:
        batch: the state; nobody else changes it while this runs.
        alive: whether the processes that compute do live; without them no step ends.
        log: writes a line as the scheduler of rank 0.
        decode_log_interval: decode steps between two lines.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        alive: Callable[[], bool] = lambda: True,
        log: Callable[[str], None] = lambda _: None,
        decode_log_interval: int = 40,
    ) -> None:
        self.batch = batch
        self.tick = Tick()
        self.slowest_step = 0.0
        """Seconds that every step takes at least."""
        self._alive = alive
        self._log = log
        self._interval = max(1, decode_log_interval)
        self._frozen = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ticked_at = 0.0
        self._tokens_then = 0

    @staticmethod
    def now() -> float:
        """Seconds on the clock of this scheduler."""
        return asyncio.get_running_loop().time()

    def submit(self, request: Request) -> None:
        """Queue a request; its owner is called after each step that brings it tokens.

        Raises:
            ValueError: its prompt does not fit.
        """
        self.batch.add(request)
        self._idle.clear()
        self._wake.set()

    def drop(self, request: Request) -> None:
        """Forget a request, if it is still there."""
        self.batch.drop(request)
        if self.batch.idle:
            self._idle.set()

    def freeze(self) -> None:
        """Let no step end any more: requests are taken, and nothing comes back."""
        self._frozen = True

    async def until_idle(self, timeout: float) -> bool:  # noqa: ASYNC109 - the API's own word
        """Wait for the last request to leave; whether it did within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def flush(self) -> None:
        """Forget what was counted, as SGLang does with its cache."""
        totals = self.batch.totals
        totals.decode_steps = totals.decode_tokens = totals.decode_requests = 0
        self.tick = Tick(self.tick.gen_throughput)

    async def run(self) -> None:
        """Take step after step, until cancelled."""
        due = self.now()
        while True:
            if self.batch.idle:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
                due = self.now()
            if self._stuck():
                await asyncio.sleep(_LOOK)
                due = self.now()
                continue
            step = self.batch.step(due)
            if step is None:  # what waits does not fit yet, and nothing runs
                await asyncio.sleep(_LOOK)
                due = self.now()
                continue
            self._report(step, due)
            due = max(due + max(step.seconds, self.slowest_step), self.now() - _BEHIND)
            # Also when late: others must have their turn.
            await asyncio.sleep(max(0.0, due - self.now()))
            while self._stuck():  # noqa: ASYNC110 - it is a process that is looked at
                await asyncio.sleep(_LOOK)
            for request in step.advanced:
                if request.owner is not None:
                    request.owner(request)
            # The batch counts the tokens of the next step when it begins, so whoever was
            # called sends what there is now first.
            await asyncio.sleep(0)

    def _stuck(self) -> bool:
        return self._frozen or not self._alive()

    def _report(self, step: Step, now: float) -> None:
        batch, behaviour = self.batch, self.batch.behaviour
        usage = batch.used_tokens / behaviour.kv_tokens
        if step.retracted:
            self._log(
                "KV cache pool is full. Retract requests. "
                f"#retracted_reqs: {step.retracted}, #new_token_ratio: {batch.expected:.4f}"
            )
        if step.kind == "prefill":
            pending = sum(request.context - request.read for request in batch.waiting)
            self._log(
                f"Prefill batch, #new-seq: {step.new}, #new-token: {step.tokens}, #cached-token: 0, "
                f"token usage: {usage:.2f}, #running-req: {len(batch.running) - len(step.advanced)}, "
                f"#queue-req: {len(batch.waiting)}, #pending-token: {pending}, cuda graph: False, "
                f"input throughput (token/s): {step.tokens / step.seconds:.2f}"
            )
        elif batch.totals.decode_steps % self._interval == 0:
            self._decode_line(step, usage, now)

    def _decode_line(self, step: Step, usage: float, now: float) -> None:
        batch, totals = self.batch, self.batch.totals
        speed = (totals.generated_tokens - self._tokens_then) / max(now - self._ticked_at, 1e-6)
        self._ticked_at, self._tokens_then = now, totals.generated_tokens
        accepted, drafting = "", batch.behaviour.drafting
        if drafting:
            length = totals.decode_tokens / max(1, totals.decode_requests)
            rate = (length - 1) / max(1, drafting.draft_tokens - 1)
            accepted = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
            self.tick = Tick(speed, length)
        else:
            self.tick = Tick(speed)
        self._log(
            f"Decode batch, #running-req: {len(step.advanced)}, #token: {batch.used_tokens}, "
            f"token usage: {usage:.2f}, {accepted}cuda graph: {batch.behaviour.cuda_graphs}, "
            f"gen throughput (token/s): {speed:.2f}, #queue-req: {len(batch.waiting)}"
        )
