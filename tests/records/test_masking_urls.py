"""Passwords inside of addresses, whatever the variable is called."""

from __future__ import annotations

import pytest

from sweeper.records.masking import mask_command, mask_mapping


@pytest.mark.parametrize("scheme", ["postgres", "https", "redis"])
def test_a_password_in_an_address_is_masked(scheme: str) -> None:
    url = f"{scheme}://user:hush@host:1/db"
    assert mask_mapping({"DATABASE_URL": url})["DATABASE_URL"] == f"{scheme}://user:***@host:1/db"
    assert mask_command(["x", "--url", url])[2] == f"{scheme}://user:***@host:1/db"


def test_an_address_without_one_is_left_alone() -> None:
    url = "http://host:30000/v1?a=b@c"
    assert mask_mapping({"URL": url}) == {"URL": url}
