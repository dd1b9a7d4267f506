"""``zookeeper.connect``, as text."""

from __future__ import annotations

import pytest

from broker.metadata.zookeeper_address import parse_connect


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk", ("zk", "")),
        ("zk1:2181,zk2:2181", ("zk1:2181,zk2:2181", "")),
        (" zk1:2181, zk2:2181/odradek/one/ ", ("zk1:2181,zk2:2181", "/odradek/one")),
        ("[::1]:2181/", ("[::1]:2181", "")),
        ("[::1]", ("[::1]", "")),
    ],
)
def test_hosts_and_chroot_are_told_apart(text: str, expected: tuple[str, str]) -> None:
    assert parse_connect(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":2181", "zk:port", "zk:0", "zk,", "zk:2181/a//b", "zk/a/../b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_connect(text)
