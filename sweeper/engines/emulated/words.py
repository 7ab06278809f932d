"""The text of every answer, and a tokenizer: words without meaning, cheap to send.

All answers are the same text, cut where they end. A cumulative chunk of SGLang's
repeats everything so far, and is here a piece of one long string.
"""

from __future__ import annotations

import zlib

_VOCABULARY = 150_000
_LONGEST_PIECE = 6
_TEXT = (
    "this text was made up by an emulated engine which reads no weights and knows nothing so "
    "do not look for any sense in it for there is none to find at all only words one after another"
)


def tokenize(text: str) -> list[int]:
    """Token ids of a text: one for each word of up to six letters, more for longer ones."""
    return [
        _token(word[at : at + _LONGEST_PIECE])
        for word in text.split()
        for at in range(0, len(word), _LONGEST_PIECE)
    ]


def _token(piece: str) -> int:
    # The same in every process, which Python's own hash of a text is not.
    return zlib.crc32(piece.encode()) % _VOCABULARY


class Answer:
    """The text that all answers begin with, and its tokens, as JSON."""

    def __init__(self) -> None:
        self._words = _TEXT.split()
        self._text, self._ids = "", ""
        self._text_ends, self._ids_ends = [0], [0]

    def text(self, tokens: int, after: int = 0) -> str:
        """The words after the first ``after``, up to ``tokens``. No character needs an escape."""
        self._grow(tokens)
        return self._text[self._text_ends[after] : self._text_ends[tokens]]

    def ids(self, tokens: int, after: int = 0) -> str:
        """Their ids, with commas in between."""
        self._grow(tokens)
        return self._ids[self._ids_ends[after] : self._ids_ends[tokens]].lstrip(", ")

    def _grow(self, tokens: int) -> None:
        have = len(self._text_ends) - 1
        if have >= tokens:
            return
        words, ids = [self._text], [self._ids]
        text_end, ids_end = len(self._text), len(self._ids)
        # By halves more than asked for: a string is copied when it grows.
        for number in range(have, tokens + tokens // 2 + 64):
            word = self._words[number % len(self._words)]
            words.append(f" {word}" if number else word)
            ids.append(f", {_token(word)}" if number else str(_token(word)))
            text_end += len(words[-1])
            ids_end += len(ids[-1])
            self._text_ends.append(text_end)
            self._ids_ends.append(ids_end)
        self._text, self._ids = "".join(words), "".join(ids)
