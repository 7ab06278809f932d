"""What a service refuses to be, and what it knows about itself."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.errors import InputError
from sweeper.export.service import Service, masked_arguments, option

PYTHON = "/opt/venv/bin/python"


def make(**changes: Any) -> Service:
    fields: dict[str, Any] = {
        "name": "sweep-1",
        "description": "the winner",
        "command": (PYTHON, "-m", "sglang.launch_server"),
        "env": {},
        "start_seconds": 30.0,
        "port": 30000,
    }
    return Service(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": "a@b"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": ""}, "name"),
        ({"env": {"A-B": "1"}}, "env"),
        ({"env": {"1A": "1"}}, "env"),
        ({"env": {"A\n": "1"}}, "env"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"start_seconds": 0.0}, "start_seconds"),
        ({"start_seconds": float("nan")}, "start_seconds"),
        ({"start_seconds": float("inf")}, "start_seconds"),
        ({"user": "a b"}, "user"),
        ({"user": "a\n"}, "user"),
        ({"working_directory": "models"}, "working_directory"),
        ({"command": ()}, "command"),
        ({"command": ("python3", "-m", "sglang.launch_server")}, "command"),
        ({"command": (PYTHON, "--port", "30001")}, "command"),
        ({"command": (PYTHON, "--api-key", "hunter2")}, "command"),
        ({"command": (PYTHON, "--admin-api-key=hunter2")}, "command"),
        ({"command": (PYTHON, "--config", '{"key": "***"}')}, "command"),
        ({"command": (PYTHON, "--proxy=http://me:***@proxy")}, "command"),
        ({"command": (PYTHON, "***")}, "command"),
        ({"description": "two\nlines"}, "comment"),
        ({"provenance": ("two\rlines",)}, "comment"),
        ({"notes": ("nul\0",)}, "comment"),
        ({"notes": ("lone \ud800",)}, "comment"),
        ({"notes": ("reserved \ufffe",)}, "comment"),
    ],
)
def test_refuses(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**changes)
    assert caught.value.where == where


def test_the_refusal_of_a_plain_secret_does_not_repeat_it() -> None:
    with pytest.raises(InputError) as caught:
        make(command=(PYTHON, "--api-key", "hunter2"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ((), "http://127.0.0.1:30000"),
        (("--host", "0.0.0.0"), "http://127.0.0.1:30000"),
        (("--host=0.0.0.0",), "http://127.0.0.1:30000"),
        (("--host", "::"), "http://[::1]:30000"),
        (("--host", "10.1.2.3"), "http://10.1.2.3:30000"),
        (("--host", "fd00::5"), "http://[fd00::5]:30000"),
        (("--ssl-certfile", "/etc/cert.pem"), "https://127.0.0.1:30000"),
    ],
)
def test_url_is_reachable_from_the_machine_itself(flags: tuple[str, ...], url: str) -> None:
    assert make(command=(PYTHON, *flags)).url == url


@pytest.mark.parametrize(
    ("command", "value"),
    [
        (("--port", "1"), "1"),
        (("--port=1",), "1"),
        (("--port", "1", "--port", "2"), "2"),
        (("--port",), None),
        (("--portal", "1"), None),
        (("--portal=1",), None),
        (("--port=",), ""),
    ],
)
def test_option(command: tuple[str, ...], value: str | None) -> None:
    assert option(command, "--port") == value


def test_masked_values_are_separated_from_known_ones() -> None:
    service = make(
        command=(PYTHON, "--api-key", "***", "--hf-token=***"),
        env={"HF_TOKEN": "***", "NCCL_PROTO": "LL", "PROXY": "http://me:***@proxy"},
    )
    assert service.settings == {"NCCL_PROTO": "LL"}
    assert service.secrets == ("HF_TOKEN", "PROXY", "FLAG_API_KEY", "FLAG_HF_TOKEN")
    assert masked_arguments(service.command) == {2: "FLAG_API_KEY", 3: "FLAG_HF_TOKEN"}
