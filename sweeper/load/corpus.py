"""Natural text to make prompts from, and prompts of an exact length in tokens.

Speculative decoding guesses the next words, so its speed on random tokens says
nothing about its speed on text. The prompts are therefore stretches of real
sentences, cut by the server's own tokenizer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

Prompt = tuple[int, ...]
"""Token ids, as the server's tokenizer made them."""


def paragraphs() -> list[str]:
    """The texts that come with the package, written for it."""
    text = Path(__file__).with_name("corpus.txt").read_text(encoding="utf-8")
    return [" ".join(block.split()) for block in text.split("\n\n") if block.strip()]


def prompts(tokens: Sequence[Sequence[int]], *, count: int, length: int, seed: str) -> list[Prompt]:
    """Prompts of exactly ``length`` tokens, each beginning at another place of the text.

    No two begin alike, so a server's prefix cache has nothing to share between
    them. The same seed gives the same prompts, for whichever candidate.

    Args:
        tokens: the paragraphs as token ids.
        count: how many prompts.
        length: of each, in tokens.
        seed: anything that names the occasion.

    Raises:
        ValueError: there are no tokens at all.
    """
    rng = random.Random(seed)
    made: list[Prompt] = []
    while len(made) < count:
        # In each lap the paragraphs follow each other in another order, so that
        # a start which comes again goes on differently.
        order = rng.sample(list(tokens), len(tokens))
        ring = [token for paragraph in order for token in paragraph]
        if not ring:
            raise ValueError("the text has no tokens")
        starts = rng.sample(range(len(ring)), min(count - len(made), len(ring)))
        made += [_stretch(ring, start, length) for start in starts]
    return made


def _stretch(ring: Sequence[int], start: int, length: int) -> Prompt:
    turned = [*ring[start:], *ring[:start]]
    return tuple((turned * (length // len(turned) + 1))[:length])
