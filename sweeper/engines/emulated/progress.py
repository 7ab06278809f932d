"""Progress bars as tqdm draws them: each state in the place of the last, by a carriage return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def shards(total: int, seconds: float) -> Iterator[tuple[float, str]]:
    """SGLang's bar for the files of a model, with the share of the time at which each state shows."""
    for done in range(total + 1):
        words = f"{100 * done / total:3.0f}% Completed | {_counter(done, total, seconds)}"
        end = "\n" if done == total else ""
        yield done / total, f"\rMulti-thread loading shards: {words}{end}"


def blocks(sizes: Sequence[int], seconds: float, free: float) -> Iterator[tuple[float, str]]:
    """The bar of a graph capture, largest batch first.

    Args:
        sizes: of the batches, ascending.
        seconds: that all of it takes.
        free: GPU memory before, in GiB.
    """
    total = len(sizes)
    yield 0.0, f"\r{_bar(0, total, seconds)}"
    for done, size in enumerate(reversed(sizes)):
        left = free - 0.15 * (done + 1) / total
        name = f"Capturing batches (bs={size} avail_mem={left:.2f} GB)"
        yield done / total, f"\r{name}: {_bar(done, total, seconds)}"
        end = "\n" if done + 1 == total else ""
        yield (done + 1) / total, f"\r{name}: {_bar(done + 1, total, seconds)}{end}"


def _bar(done: int, total: int, seconds: float) -> str:
    eighths = int(80 * done / total)
    full, part = divmod(eighths, 8)
    drawn = ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(10)
    return f"{100 * done / total:3.0f}%|{drawn}| {_counter(done, total, seconds)}"


def _counter(done: int, total: int, seconds: float) -> str:
    spent = seconds * done / total
    if not done or not spent:
        return f"{done}/{total} [00:00<?, ?it/s]"
    rate = done / spent
    shown = f"{rate:5.2f}it/s" if rate >= 1 else f"{1 / rate:5.2f}s/it"
    return f"{done}/{total} [{_clock(spent)}<{_clock(seconds - spent)}, {shown}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
