"""Passwords inside of addresses, whatever the variable is called."""

from __future__ import annotations

import pytest

from sweeper.records.masking import mask_command, mask_mapping, mask_text, secret_values


@pytest.mark.parametrize("scheme", ["postgres", "https", "redis"])
def test_a_password_in_an_address_is_masked(scheme: str) -> None:
    url = f"{scheme}://user:hush@host:1/db"
    assert mask_mapping({"DATABASE_URL": url})["DATABASE_URL"] == f"{scheme}://user:***@host:1/db"
    assert mask_command(["x", "--url", url])[2] == f"{scheme}://user:***@host:1/db"


def test_an_address_without_one_is_left_alone() -> None:
    url = "http://host:30000/v1?a=b@c"
    assert mask_mapping({"URL": url}) == {"URL": url}


def test_the_values_of_secrets_are_not_in_free_text() -> None:
    secrets = secret_values({"HF_TOKEN": "hf_abcdef", "MY_KEY_ID": "x"}, {"API_KEY": "k3y-long"})
    assert secrets == {"hf_abcdef", "k3y-long"}
    line = "error: unrecognized arguments: --api-key=k3y-long http://me:hush@host/x hf_abcdef"
    assert mask_text(line, secrets) == (
        "error: unrecognized arguments: --api-key=*** http://me:***@host/x ***"
    )
