"""Whose request it is, behind proxies too."""

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from dashboard.addresses import client_address, lockout_address


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, None, "10.0.0.9"),
        (0, "203.0.113.7", "10.0.0.9"),
        (1, "203.0.113.7", "203.0.113.7"),
        # What the client itself wrote stands on the left and is not believed.
        (1, "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        (1, "198.51.100.1, 198.51.100.2, 203.0.113.7", "203.0.113.7"),
        (2, "198.51.100.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        # Not through both proxies: nothing there can be believed.
        (2, "203.0.113.7", "10.0.0.9"),
        (1, None, "10.0.0.9"),
        (1, "unknown", "10.0.0.9"),
        (1, "' OR 1=1 --", "10.0.0.9"),
        (1, "203.0.113.7:4711", "203.0.113.7"),
        (1, '"[2001:db8::7]:4711"', "2001:db8::7"),
        (1, "::ffff:203.0.113.7", "203.0.113.7"),
    ],
)
def test_only_what_a_trusted_proxy_wrote_is_believed(
    settings: Settings, proxies: int, forwarded: str | None, address: str
) -> None:
    settings.ODRADEK_TRUSTED_PROXIES = proxies
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.9", headers=headers)

    assert client_address(request) == address


def test_a_socket_without_an_address_is_nobody() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="")

    assert client_address(request) == ""
    assert lockout_address(request) is None


def test_lockouts_count_a_network_of_ipv6_as_one_client() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="2001:db8:1:2:aaaa:bbbb:cccc:dddd")

    assert lockout_address(request) == "2001:db8:1:2::"
