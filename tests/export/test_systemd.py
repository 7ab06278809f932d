"""The unit, as systemd itself reads it.

``systemd-analyze verify`` loads a unit with the code that the service manager
runs, and at the debug level it prints what it made of it: each command after
unquoting and after specifiers, each variable, each setting. That is the oracle
here. Only the last step, variables in a command line, happens when the service
starts; :func:`started_with` does it as systemd.service(5) describes.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.errors import InputError
from sweeper.export.service import Service
from sweeper.export.systemd import quote_argument, quote_assignment, start_timeout, unit

ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def make(*flags: str, **changes: Any) -> Service:
    fields: dict[str, Any] = {
        "name": "sweep-1",
        "description": "the winner",
        "command": (sys.executable, "-m", "sglang.launch_server", *flags),
        "env": {},
        "start_seconds": 30.0,
        "port": 30000,
    }
    return Service(**{**fields, **changes})


class Loaded:
    """A unit as systemd loaded it."""

    def __init__(self, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep-1.service"
            path.write_text(text)
            self.complaints = self._verify(path, "warning").stderr
            self.dump = self._verify(path, "debug").stdout

    @staticmethod
    def _verify(path: Path, level: str) -> subprocess.CompletedProcess[str]:
        assert ANALYZE is not None
        return subprocess.run(
            [ANALYZE, "verify", path],
            env={"PATH": os.environ["PATH"], "SYSTEMD_LOG_LEVEL": level},
            capture_output=True,
            text=True,
        )

    def values(self, key: str) -> list[str]:
        # Not splitlines(): it also breaks at characters that are no line ends here.
        lines = [line.strip("\t") for line in self.dump.split("\n")]
        return [line.removeprefix(f"{key}: ") for line in lines if line.startswith(f"{key}: ")]

    def commands(self, key: str) -> list[list[str]]:
        section = re.search(rf"-> {key}:\n((?:\t+Command Line: .*\n)+)", self.dump)
        lines = section[1].split("\n")[:-1] if section else []
        return [words(line.split("Command Line: ", 1)[1]) for line in lines]


def words(line: str) -> list[str]:
    """Undo the quoting of systemd's printout: double quotes, backslash for any character."""
    quoted = r'"((?:\\.|[^"\\])*)"'
    found = re.findall(rf"(?:{quoted}|([^ ]+))(?: |$)", line, re.DOTALL)
    return [plain or re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL) for inner, plain in found]


def started_with(command: list[str], env: Mapping[str, str]) -> list[str]:
    """What a program receives, from systemd.service(5): ``$$``, ``${A}`` and ``$A``."""
    received = []
    for word in command:
        if re.match(r"\$[^${]", word):
            received += env.get(word[1:], "").split()
        else:
            pattern = r"\$(?:(\$)|\{(\w+)\})"
            received.append(re.sub(pattern, lambda m: m[1] or env.get(m[2], ""), word))
    return received


def writable(character: str) -> bool:
    point = ord(character)
    reserved = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF
    return not reserved and unicodedata.category(character) not in ("Cc", "Cs")


hostile = st.text(
    st.one_of(
        st.sampled_from("%$\"'\\ ;#{}=@-+:!~`*&|<>()[],nxt0Hi"),
        st.characters().filter(writable),
    ),
    max_size=12,
)


@needs_systemd
@settings(max_examples=60, deadline=None)
@given(st.lists(hostile, max_size=8))
def test_every_argument_arrives_as_it_was(arguments: list[str]) -> None:
    loaded = Loaded(unit(make(*(each for each in arguments if "***" not in each))))
    (command,) = loaded.commands("ExecStart")
    expected = [sys.executable, "-m", "sglang.launch_server"]
    expected += [each for each in arguments if "***" not in each]
    assert started_with(command, {"H": "wrong", "i": "wrong"}) == expected
    assert loaded.complaints == ""


@needs_systemd
@settings(max_examples=60, deadline=None)
@given(st.lists(hostile.filter(lambda text: "***" not in text), max_size=8))
def test_every_variable_arrives_as_it_was(values: list[str]) -> None:
    env = {f"NAME_{index}": value for index, value in enumerate(values)}
    loaded = Loaded(unit(make(env=env)))
    assert loaded.values("Environment") == [f"{name}={value}" for name, value in env.items()]
    assert loaded.complaints == ""


@needs_systemd
@settings(max_examples=40, deadline=None)
@given(hostile, hostile)
def test_comments_and_description_change_nothing_else(line: str, description: str) -> None:
    try:
        text = unit(make(description=description, provenance=(line,), notes=(line, "")))
    except InputError as error:
        assert error.where == "description"  # noqa: PT017
        return
    loaded = Loaded(text)
    assert loaded.complaints == ""
    assert loaded.values("Type") == ["exec"]
    if description:
        assert loaded.values("Description") == [description]


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [
        ("--tp", "--tp"),
        ("", '""'),
        ("a b", '"a b"'),
        ("100%", "100%%"),
        ("$HOME", '"$$HOME"'),
        (";", '";"'),
        ('{"a": 1}', "'{\"a\": 1}'"),
        ("it's", '"it\'s"'),
        ("""both " and '""", '"both \\" and \'"'),
        ("C:\\new", '"C:\\\\new"'),
    ],
)
def test_quoted_argument(argument: str, quoted: str) -> None:
    assert quote_argument(argument) == quoted


def test_a_dollar_is_doubled_in_commands_only() -> None:
    assert quote_argument("A=$B") == '"A=$$B"'
    assert quote_assignment("A", "$B") == '"A=$B"'


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\ud800"])
def test_refuses_what_cannot_stand_on_a_line(character: str) -> None:
    with pytest.raises(InputError):
        unit(make(f"a{character}ExecStopPost=/bin/false"))
    with pytest.raises(InputError):
        unit(make(env={"A": f"a{character}ExecStopPost=/bin/false"}))
    with pytest.raises(InputError):
        unit(make(working_directory=f"/a{character}ExecStopPost=/bin/false"))


@pytest.mark.parametrize("path", ["/opt/$x/python", "/opt/a'b/python", '/opt/"/p', "/opt/\\/p"])
def test_refuses_an_interpreter_that_systemd_cannot_run(path: str) -> None:
    with pytest.raises(InputError, match="symbolic link"):
        unit(make(command=(path, "-m", "sglang.launch_server")))


@needs_systemd
@pytest.mark.parametrize("folder", ["with space", "100%", "ünï", "a;b", "a#b"])
def test_an_odd_path_of_the_interpreter_is_kept(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    link = tmp_path / folder / "python"
    link.symlink_to(sys.executable)
    loaded = Loaded(unit(make(command=(str(link), "-m", "sglang.launch_server"))))
    assert loaded.complaints == ""
    assert loaded.commands("ExecStart")[0][0] == str(link)


@needs_systemd
def test_systemd_takes_every_setting() -> None:
    loaded = Loaded(
        unit(
            make(
                "--speculative-algorithm",
                "EAGLE3",
                env={"NCCL_PROTO": "LL"},
                user="nobody",
                working_directory="/tmp",
                provenance=("ends with a backslash \\",),
            )
        )
    )
    assert loaded.complaints == ""
    for key, value in {
        "Type": "exec",
        "User": "nobody",
        "WorkingDirectory": "/tmp",
        "KillMode": "mixed",
        "Restart": "on-failure",
        "TimeoutStartSec": "4min",
        "TimeoutStopSec": "1min",
        "RestartSec": "10s",
        "EnvironmentFile": "-/etc/sweeper/sweep-1.env",
        "LimitNOFILE": "1048576",
        "LimitMEMLOCK": str(2**64 - 1),
    }.items():
        assert loaded.values(key) == [value], key
    assert "network-online.target (origin-file)" in loaded.values("Wants")
    assert "network-online.target (origin-file)" in loaded.values("After")
    assert "nvidia-persistenced.service (origin-file)" in loaded.values("After")


@needs_systemd
def test_the_oracle_sees_a_wrong_unit() -> None:
    wrong = unit(make()).replace("KillMode=", "KillModus=")
    assert "Unknown key 'KillModus'" in Loaded(wrong).complaints


@pytest.mark.parametrize(
    ("measured", "allowed"), [(1.0, 180), (30.0, 240), (313.2, 1080), (None, 3600)]
)
def test_start_timeout(measured: float | None, allowed: int) -> None:
    assert start_timeout(measured) == allowed


@pytest.mark.parametrize("measured", [1.0, 30.0, 313.2, 1800.0, None])
def test_a_server_that_dies_after_loading_is_not_started_for_ever(measured: float | None) -> None:
    text = unit(make(start_seconds=measured))
    numbers = {key: int(value) for key, value in re.findall(r"^(\w+)=(\d+)$", text, re.MULTILINE)}
    one = numbers["TimeoutStartSec"] + numbers["TimeoutStopSec"] + numbers["RestartSec"]
    assert numbers["StartLimitIntervalSec"] > numbers["StartLimitBurst"] * one


@needs_systemd
def test_secrets_come_from_a_file_that_must_exist() -> None:
    service = make("--api-key", "***", "--hf-token=***", env={"HF_TOKEN": "***", "A": "1"})
    text = unit(service)
    loaded = Loaded(text)
    assert "***" not in text
    assert loaded.complaints == ""
    assert loaded.values("Environment") == ["A=1"]
    assert loaded.values("EnvironmentFile") == ["/etc/sweeper/sweep-1.env"]
    (command,) = loaded.commands("ExecStart")
    supplied = {"FLAG_API_KEY": "k e$y", "FLAG_HF_TOKEN": "t"}
    assert started_with(command, supplied)[3:] == ["--api-key", "k e$y", "--hf-token=t"]


@needs_systemd
def test_the_service_does_not_start_without_its_secrets() -> None:
    loaded = Loaded(unit(make("--api-key", "***", env={"HF_TOKEN": "***"})))
    checks = [each for each in loaded.commands("ExecStartPre") if each[0] == "/usr/bin/test"]
    for given_, statuses in [
        ({}, [1, 1]),
        ({"HF_TOKEN": "a"}, [0, 1]),
        ({"HF_TOKEN": "a", "FLAG_API_KEY": "="}, [0, 0]),
    ]:
        commands = [started_with(each, given_) for each in checks]
        assert [subprocess.run(each).returncode for each in commands] == statuses


class Server:
    """A server that loads (503) for some requests, then completes."""

    def __init__(self, loading: int) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404)
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                self.send_response(503 if len(outer.requests) <= loading else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    running = Server(loading=request.param)
    yield running
    running.close()


def execute(command: list[str], **env: str) -> int:
    """Run a command of the unit with little more than systemd gives it."""
    # A proxy of the configuration must not be asked for the loopback address.
    env = {"PATH": os.environ["PATH"], "http_proxy": "http://127.0.0.1:9", **env}
    return subprocess.run(started_with(command, env), env=env, timeout=60).returncode


def dead_process() -> str:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return str(process.pid)


@needs_systemd
@pytest.mark.parametrize("server", [1], indirect=True)
def test_waits_until_a_completion_is_answered(server: Server) -> None:
    loaded = Loaded(unit(make("--api-key", "***", port=server.port)))
    (command,) = loaded.commands("ExecStartPost")
    assert execute(command, MAINPID=str(os.getpid()), FLAG_API_KEY="k e'y") == 0
    assert len(server.requests) == 2
    method, path, headers, body = server.requests[-1]
    assert (method, path) == ("POST", "/generate")
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer k e'y"
    assert json.loads(body)["sampling_params"]["max_new_tokens"] == 1


@needs_systemd
@pytest.mark.parametrize("server", [0], indirect=True)
def test_sends_no_key_where_there_is_none(server: Server) -> None:
    (command,) = Loaded(unit(make(port=server.port))).commands("ExecStartPost")
    assert execute(command, MAINPID=str(os.getpid())) == 0
    assert "Authorization" not in server.requests[0][2]


def test_asks_a_server_with_a_certificate_over_https() -> None:
    plain, encrypted = unit(make()), unit(make("--ssl-certfile", "/etc/cert.pem"))
    # Twice: is the port free, and is the completion answered.
    assert (plain.count("http://127.0.0.1:30000/"), plain.count("--insecure")) == (2, 0)
    assert (encrypted.count("https://127.0.0.1:30000/"), encrypted.count("--insecure")) == (2, 2)


@needs_systemd
@pytest.mark.parametrize("server", [10**9], indirect=True)
def test_stops_waiting_when_the_server_is_dead(server: Server) -> None:
    (command,) = Loaded(unit(make(port=server.port))).commands("ExecStartPost")
    began = time.monotonic()
    assert execute(command, MAINPID=dead_process()) == 1
    assert time.monotonic() - began < 10


@needs_systemd
@pytest.mark.parametrize("server", [0], indirect=True)
def test_does_not_start_on_a_port_that_is_answered(server: Server) -> None:
    (command,) = Loaded(unit(make(port=server.port))).commands("ExecStartPre")
    assert execute(command) != 0
    server.close()
    assert execute(command) == 0


@needs_systemd
def test_does_not_start_on_a_port_that_is_taken_by_something_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = make(port=listener.getsockname()[1])
        (command,) = Loaded(unit(service)).commands("ExecStartPre")
        assert execute(command) != 0
