"""What every exported format needs to know about the winning server.

A :class:`Service` is made from records alone, so whatever was secret in the
sweep is already masked in it. The values themselves are not known here; a
format refers to them by the name of a variable, which the person who installs
the export fills in on the machine.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.errors import InputError
from sweeper.records.masking import MASK

# An export is a file that others can read. These flags of SGLang always carry
# a secret, so a plain value means that the masking was missed upstream.
_SECRET_FLAGS = ("--api-key", "--admin-api-key", "--ssl-keyfile-password")

# Addresses to listen on that are no addresses to connect to.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104

# Becomes a file name in every format, so nothing that a path or a unit name
# gives a meaning to: no slash, no "@" (a template), no leading dash or dot.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Service:
    """One server, ready to be written in some format.

    Args:
        name: the sweep's name; the file and the service are called after it.
        description: one line for people.
        command: the interpreter's absolute path, ``-m``,
            ``sglang.launch_server`` and the flags.
        env: the variables that the configuration sets, and what it needs of the shell's.
        start_seconds: the measured time from launch to ready, if there is one.
        port: where the server listens.
        provenance: one line of text each: sweep, trial, date, versions, numbers.
        notes: one line of text each: what the reader should know before use.
        user: the account that the trials ran under, whose model and kernel
            caches the server needs.
        working_directory: where the trials ran, for flags with relative paths.

    Raises:
        InputError: where no format could hold the value, or it would be unsafe.
    """

    name: str
    description: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    start_seconds: float | None
    port: int
    provenance: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    user: str | None = None
    working_directory: str | None = None

    def __post_init__(self) -> None:
        _check_names(self)
        _check_command(self)
        for line in (self.description, *self.provenance, *self.notes):
            require_one_line(line, where="comment")

    @property
    def settings(self) -> dict[str, str]:
        """The variables whose values are known, in their order."""
        return {name: value for name, value in self.env.items() if MASK not in value}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that the installer must supply: masked ones, then masked flags."""
        masked = [name for name, value in self.env.items() if MASK in value]
        return tuple(dict.fromkeys([*masked, *masked_arguments(self.command).values()]))

    @property
    def url(self) -> str:
        """The server's address as seen from its own machine."""
        listens = option(self.command, "--host") or "127.0.0.1"
        host = _LOOPBACK_OF.get(listens, listens)
        scheme = "https" if option(self.command, "--ssl-certfile") else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"


def option(command: tuple[str, ...], flag: str) -> str | None:
    """The value that a command gives to a flag; the last one counts, as in argparse.

    >>> option(("python", "--port", "1", "--port=2"), "--port")
    '2'
    """
    value = None
    for index, word in enumerate(command):
        if word == flag and index + 1 < len(command):
            value = command[index + 1]
        elif word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
    return value


def masked_arguments(command: tuple[str, ...]) -> dict[int, str]:
    """Where a command holds a masked value, and the variable that stands for it.

    >>> masked_arguments(("python", "--api-key", "***", "--hf-token=***"))
    {2: 'FLAG_API_KEY', 3: 'FLAG_HF_TOKEN'}

    Raises:
        InputError: when a mask is not the whole value of a flag, since the rest
            of the value cannot be put together again.
    """
    found = {}
    for index, word in enumerate(command):
        if MASK not in word:
            continue
        flag, _, value = word.partition("=")
        if word == MASK and index > 0:
            flag, value = command[index - 1], word
        if not re.fullmatch(r"--[A-Za-z0-9_-]+", flag) or value != MASK:
            raise InputError(
                f"argument {index} has a masked secret in the middle of its value",
                where="command",
                advice="Give the secret through an environment variable of its own.",
            )
        found[index] = "FLAG_" + flag.removeprefix("--").replace("-", "_").upper()
    return found


def require_one_line(text: str, *, where: str) -> None:
    """Refuse text that a line-based file cannot hold as it is.

    A line break would start a line of its own, which in most formats is a
    setting of its own. The other refused characters are those that readers
    reject or drop: control characters, lone surrogates (bytes that were no
    UTF-8) and the code points that Unicode reserves as non-characters.
    """
    for character in text:
        point = ord(character)
        reserved = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF
        if reserved or unicodedata.category(character) in ("Cc", "Cs"):
            raise InputError(
                f"has the character U+{point:04X}, which cannot be written on one line",
                where=where,
                advice="Remove it, or pass the value in a file that the flag names.",
            )


def _check_names(service: Service) -> None:
    if not _NAME.fullmatch(service.name):
        raise InputError(
            f"{service.name!r} cannot be the name of a file and a service",
            where="name",
            advice="Use letters, digits, '.', '_' and '-', and begin with a letter or digit.",
        )
    for variable in service.env:
        if not _VARIABLE.fullmatch(variable):
            raise InputError(f"{variable!r} is no name of an environment variable", where="env")
    if not 0 < service.port < 65536:
        raise InputError(f"{service.port} is no port", where="port")
    seconds = service.start_seconds
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{seconds} is no time that a start can take", where="start_seconds")
    if service.user is not None and not _USER.fullmatch(service.user):
        raise InputError(f"{service.user!r} is no name of a user", where="user")
    directory = service.working_directory
    if directory is not None and not directory.startswith("/"):
        raise InputError(f"{directory!r} is not absolute", where="working_directory")


def _check_command(service: Service) -> None:
    if not service.command or not service.command[0].startswith("/"):
        raise InputError(
            "does not begin with an absolute path",
            where="command",
            advice="A service has no PATH of yours: name the interpreter in full.",
        )
    port = option(service.command, "--port")
    if port is not None and port != str(service.port):
        raise InputError(
            f"says --port {port}, but the service is said to listen on {service.port}",
            where="command",
        )
    for flag in _SECRET_FLAGS:
        if option(service.command, flag) not in (None, MASK):
            raise InputError(
                f"holds the value of {flag} in plain text",
                where="command",
                advice=f"Everyone can read an exported file: mask the value as {MASK}.",
            )
    masked_arguments(service.command)
