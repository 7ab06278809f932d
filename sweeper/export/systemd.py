"""A systemd unit that runs the winning configuration.

The quoting follows systemd.syntax(7) and systemd.service(5). Two rules are
easy to get wrong: ``%`` starts a specifier everywhere, while ``$`` starts a
variable in ``Exec...=`` lines only.

The unit counts as started when the server has answered a real completion. What
that costs, and what the unit would get wrong without it, stands in the comments
that it carries itself: they are for whoever reads it at three in the morning.
"""

from __future__ import annotations

import json
import math
import re
import shlex

from sweeper.errors import InputError
from sweeper.export.service import Service, masked_arguments, option, require_one_line
from sweeper.records.masking import MASK

_RESTART_SECONDS = 10
_STOP_SECONDS = 60
_START_LIMIT = 3

# Token ids instead of text: the only form that every server takes, also one
# that was started with --skip-tokenizer-init.
_COMPLETION = json.dumps(
    {"input_ids": [10, 11, 12], "sampling_params": {"max_new_tokens": 1}}, separators=(",", ":")
)

_BARE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")


def unit(service: Service) -> str:
    """The text of ``<name>.service``.

    Raises:
        InputError: when a value cannot be written in a unit.
    """
    sections = (_header(service), _unit_section(service), _service_section(service))
    install = ["[Install]", "WantedBy=multi-user.target"]
    return "\n\n".join("\n".join(lines) for lines in (*sections, install)) + "\n"


def environment_file(service: Service) -> str:
    """The path of the file that holds the service's secrets on its machine."""
    return f"/etc/sweeper/{service.name}.env"


def start_timeout(measured: float | None) -> int:
    """Seconds to allow for a start, from the measured ones.

    Three times and two minutes, since a trial starts in the best case: the
    weights in the page cache, the kernels compiled by the trial before it. After
    a reboot neither is so, and a server that is killed while it still loads will
    not do better the next time. Without a measurement: an hour.
    """
    if measured is None:
        return 3600
    return math.ceil((3 * measured + 120) / 60) * 60


def quote_argument(text: str) -> str:
    """One argument of an ``Exec...=`` line, protected from every expansion.

    >>> print(quote_argument('{"price": "$5"}'))
    '{"price": "$$5"}'
    """
    return _quote(text.replace("$", "$$"), where="command")


def quote_assignment(name: str, value: str) -> str:
    """One ``NAME=value`` of an ``Environment=`` line, where ``$`` means nothing.

    >>> print(quote_assignment("RATIO", "$5 is 50%"))
    "RATIO=$5 is 50%%"
    """
    return _quote(f"{name}={value}", where=f"env {name}")


def _quote(text: str, *, where: str) -> str:
    require_one_line(text, where=where)
    text = text.replace("%", "%%")
    if _BARE.fullmatch(text):
        return text
    text = text.replace("\\", "\\\\")
    # Both kinds of quotes follow the same rules, so take the one that leaves
    # JSON readable.
    if '"' in text and "'" not in text:
        return f"'{text}'"
    return '"' + text.replace('"', '\\"') + '"'


def _literal(text: str, *, where: str) -> str:
    """A setting that systemd takes as it stands: only ``%`` and the line's end matter."""
    require_one_line(text, where=where)
    if text.endswith("\\") or text != text.strip():
        raise InputError("begins or ends with a space, or ends with a backslash", where=where)
    return text.replace("%", "%%")


def _comment(lines: tuple[str, ...]) -> list[str]:
    return [f"# {line}".rstrip() for line in lines]


def _header(service: Service) -> list[str]:
    name = f"{service.name}.service"
    notes = ["#", "# Notes:", *_comment(service.notes)] if service.notes else []
    return [
        *_comment(service.provenance),
        *notes,
        "#",
        f"# To install, as root: cp {name} /etc/systemd/system/ && systemctl daemon-reload",
        f"# && systemctl enable --now {name}",
    ]


def _unit_section(service: Service) -> list[str]:
    one_failed_start = start_timeout(service.start_seconds) + _STOP_SECONDS + _RESTART_SECONDS
    wanted = "network-online.target nvidia-persistenced.service"
    return [
        "[Unit]",
        f"Description={_literal(service.description, where='description')}",
        f"Wants={wanted}",
        f"After={wanted}",
        f"# Give up after {_START_LIMIT} starts that failed. The interval must be longer than they",
        "# take together: with the default of 10 s, a server that dies after minutes of",
        "# loading would be started for ever.",
        f"StartLimitIntervalSec={(_START_LIMIT + 1) * one_failed_start}",
        f"StartLimitBurst={_START_LIMIT}",
    ]


def _service_section(service: Service) -> list[str]:
    return [
        "[Service]",
        "Type=exec",
        *_account(service),
        *_environment(service),
        "",
        *_start(service),
        "",
        "# SIGTERM goes to the launcher, which lets running requests finish, however long",
        "# they take. Then, or when the launcher is gone, everything left in the control",
        "# group is killed: a launcher stopped while it loads leaves its workers behind.",
        "KillMode=mixed",
        f"TimeoutStopSec={_STOP_SECONDS}",
        "# A worker that fails kills the launcher with SIGKILL: never list that signal as a",
        "# success, or a crash would not restart the service.",
        "Restart=on-failure",
        f"RestartSec={_RESTART_SECONDS}",
        "",
        "# Many files and sockets; memory that is pinned for the GPUs.",
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
    ]


def _account(service: Service) -> list[str]:
    if service.user is None:
        lines = [
            "# No User=: this runs as root, and looks for models and compiled kernels in",
            "# root's home. Name the account that ran the sweep to use its caches.",
        ]
    else:
        lines = [f"User={service.user}"]
    if service.working_directory is not None:
        directory = _literal(service.working_directory, where="working_directory")
        lines.append(f"WorkingDirectory={directory}")
    return lines


def _environment(service: Service) -> list[str]:
    lines = [
        "# A service inherits nothing of a login shell. What the trials may have needed of it",
        "# (PATH to ninja or nvcc, CUDA_HOME, HF_HOME) is here where it was set for them.",
    ]
    for name, value in service.settings.items():
        lines.append(f"Environment={quote_assignment(name, value)}")
    return [*lines, *_secrets(service)]


def _secrets(service: Service) -> list[str]:
    path = environment_file(service)
    if not service.secrets:
        purpose = "# For variables that must not stand in a file that everyone can read."
        return [purpose, f"EnvironmentFile=-{path}"]
    return [
        "# Everyone can read this unit, so its secrets are elsewhere: write this file with",
        "# mode 0600, one NAME=value a line. Without them the service must not start: an",
        "# empty API key would be no API key.",
        *(f"#   {name}=" for name in service.secrets),
        f"EnvironmentFile={path}",
        *(f"ExecStartPre=/usr/bin/test -n ${{{name}}}" for name in service.secrets),
    ]


def _start(service: Service) -> list[str]:
    measured = service.start_seconds
    found = "was not measured" if measured is None else f"took {measured:.0f} s in the sweep"
    return [
        "# Something else on the port would answer in the place of this server until its",
        "# weights are loaded; only then does SGLang find that it cannot listen.",
        f"ExecStartPre={_shell(_port_is_free(service))}",
        f"ExecStart={_exec_start(service)}",
        "# With Type=exec the service is started as soon as the interpreter runs, minutes",
        "# before it can answer. This waits for a real completion, so that the service is",
        "# 'active' when it works, and so that TimeoutStartSec= has something to limit. It",
        "# ends with the server: systemd itself would wait for this command although the",
        "# server died.",
        f"ExecStartPost={_shell(_wait_for_completion(service))}",
        f"# The start {found}; this allows for a cold disk and cold kernel caches.",
        f"TimeoutStartSec={start_timeout(measured)}",
    ]


def _exec_start(service: Service) -> str:
    """The command, a flag a line."""
    executable = service.command[0]
    if re.search(r"""[$"'\\]""", executable):
        raise InputError(
            f"the interpreter's path {executable!r} has a character that systemd does not "
            "take there",
            where="command",
            advice="Make a symbolic link to it without $, quotes and backslashes.",
        )
    masked = masked_arguments(service.command)
    lines: list[list[str]] = [[]]
    for index, word in enumerate(service.command):
        if word.startswith("--"):
            lines.append([])
        if index in masked:
            # Of "--flag=***" the flag stays; systemd puts the value in one word.
            lines[-1].append(word.replace(MASK, f"${{{masked[index]}}}"))
        else:
            lines[-1].append(quote_argument(word))
    return " \\\n    ".join(" ".join(words) for words in lines)


def _shell(script: str) -> str:
    return f"/bin/sh -c {quote_argument(script)}"


def _curl(service: Service, path: str, *options: str) -> str:
    # --noproxy: the configuration may set http_proxy. --insecure: a certificate
    # is made out to the public name, not to the loopback address.
    insecure = ("--insecure",) if service.url.startswith("https:") else ()
    common = ("curl", "--silent", "--output", "/dev/null", "--noproxy", "*", *insecure)
    return shlex.join((*common, *options, service.url + path))


def _port_is_free(service: Service) -> str:
    """A script that succeeds if nothing listens: 7 is curl's word for 'could not connect'."""
    return f"{_curl(service, '/', '--max-time', '5')}; test $? -eq 7"


def _wait_for_completion(service: Service) -> str:
    """A script that succeeds with the first completion, and fails with the main process."""
    options = ["--fail", "--header", "Content-Type: application/json", "--data", _COMPLETION]
    attempt = _curl(service, "/generate", *options)
    if option(service.command, "--api-key") is not None:
        attempt += ' --header "Authorization: Bearer $FLAG_API_KEY"'
    return f'until {attempt}; do kill -0 "$MAINPID" || exit 1; sleep 2; done'
