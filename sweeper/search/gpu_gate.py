"""Nothing is measured beside somebody else's process: who is on the GPUs, and what then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sweeper.errors import MachineError
from sweeper.machine.gpu_processes import GpuUser, busy
from sweeper.servers import tagged
from sweeper.spec.schema import Gpus

_LOOK_EVERY = 2.0
_SHOWN = 8


def users_of(gpus: Sequence[str] | None) -> list[GpuUser]:
    """Who is on these GPUs now (all of them for None); empty without a GPU."""
    return busy(gpus, tag_of=tagged.tag_of)


def wait_until_free(
    look: Callable[[], list[GpuUser]],
    policy: Gpus,
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Return when nobody is on the GPUs, or when a stop was asked for.

    Args:
        look: who is on them now.
        policy: of the file: refuse at once, or wait and for how long.
        stop: whether to give up without a word.
        clock: seconds.
        sleep: waits for seconds.
        say: is told once that it waits, and for whom.

    Raises:
        MachineError: somebody is, and waiting is not wanted or was in vain.
    """
    begin = clock()
    while users := look():
        waited = clock() - begin
        if policy.when_busy == "refuse" or waited >= policy.wait_for:
            raise _busy(users, waited)
        if stop():
            return
        if waited == 0:
            say(f"waiting for the GPUs, at most {policy.wait_for:g} s: {_names(users)}")
        sleep(_LOOK_EVERY)


def _busy(users: Sequence[GpuUser], waited: float) -> MachineError:
    after = f" after {waited:.0f} s" if waited >= 1 else ""
    if all(user.ours for user in users):
        advice = (
            'They are servers of a sweep. "python -m sweeper doctor" says whether it still runs.'
        )
    else:
        advice = 'End them, or write "gpus: {when_busy: wait}" into the file.'
    return MachineError(
        f"the GPUs are in use{after}: {_names(users)}", where="the GPUs", advice=advice
    )


def _names(users: Sequence[GpuUser]) -> str:
    more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
    return "; ".join(map(str, users[:_SHOWN])) + more
