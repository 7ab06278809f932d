"""Secrets never reach a record: values of names that look secret are masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MASK = "***"
"""What records hold in the place of a secret value."""

_SECRET = re.compile(
    r"(?i)(token|secret|passw|credential|api[-_]?key|access[-_]?key|private[-_]?key|(^|[-_])auth)"
)
# Names that the pattern hits although they hold no secret: token counts.
_HARMLESS = re.compile(
    r"(?i)(tokens|tokenizer|token[-_](?:usage|capacity|step|num|interval|budget|weight))"
)

# A shorter value would be found inside other words.
_LEAST = 6

# user:password@ in an address, whatever the name of the variable is.
_IN_ADDRESS = re.compile(r"(\w://[^\s/:@]*:)[^\s/@]+@")


def looks_secret(name: str) -> bool:
    """Whether the value of a variable or flag of this name should not be shown."""
    return bool(_SECRET.search(_HARMLESS.sub("", name)))


def mask_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping, secret values masked at every depth."""
    return {
        name: MASK
        if looks_secret(name) and value not in (None, "", False, True)
        else mask_value(value)
        for name, value in values.items()
    }


def mask_value(value: Any) -> Any:
    """``value`` with secret values inside it masked, by the names that they have there."""
    if isinstance(value, Mapping):
        return mask_mapping(value)
    if isinstance(value, list | tuple):
        return [mask_value(item) for item in value]
    if isinstance(value, str):
        return _IN_ADDRESS.sub(rf"\1{MASK}@", value)
    return value


def secret_values(*mappings: Mapping[str, str]) -> frozenset[str]:
    """The values of names that look secret, long enough to be told from ordinary words."""
    return frozenset(
        value
        for mapping in mappings
        for name, value in mapping.items()
        if looks_secret(name) and len(value) >= _LEAST
    )


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """Free text, such as a line of a log, without these values and without passwords in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return str(mask_value(text))


def mask_command(command: Sequence[str]) -> list[str]:
    """A command line, secret values of flags masked (``--api-key X`` and ``--api-key=X``)."""
    shown: list[str] = []
    secret_next = False
    for word in command:
        if secret_next and not word.startswith("--"):
            shown.append(MASK)
            secret_next = False
            continue
        name, equals, _ = word.partition("=")
        is_secret = word.startswith("--") and looks_secret(name)
        shown.append(f"{name}={MASK}" if is_secret and equals else mask_value(word))
        secret_next = is_secret and not equals
    return shown
