from __future__ import annotations

import pytest

from broker.config.definition import ConfigError
from broker.config.listeners import (
    Listener,
    check_distinct_ports,
    parse_listeners,
    parse_protocol_map,
)

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "OUTSIDE": "PLAINTEXT"}


def one(text: str) -> Listener:
    (listener,) = parse_listeners("listeners", (text,), PROTOCOLS)
    return listener


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://127.0.0.1:0", "127.0.0.1", 0),
        ("plaintext://broker.example:65535", "broker.example", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        (" PLAINTEXT://0.0.0.0:9092 ", "0.0.0.0", 9092),
    ],
)
def test_listener_is_read(text: str, host: str, port: int) -> None:
    assert one(text) == Listener("PLAINTEXT", host, port, "PLAINTEXT")


@pytest.mark.parametrize("text", ["PLAINTEXT://:9092", "OUTSIDE://[::1]:1", "OUTSIDE://a:1"])
def test_listener_is_written_as_it_is_read(text: str) -> None:
    assert str(one(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "9092",
        "127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1",
        "PLAINTEXT://127.0.0.1:",
        "PLAINTEXT://:65536",
        "PLAINTEXT://:-1",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://a:b:1",
        "UNKNOWN://:9092",
        "://:9092",
        "",
    ],
)
def test_what_is_no_listener_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        one(text)


def test_two_listeners_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="different name"):
        parse_listeners("listeners", ("PLAINTEXT://:1", "plaintext://:2"), PROTOCOLS)


@pytest.mark.parametrize(
    ("hosts", "is_allowed"),
    [
        (("127.0.0.1", "::1"), True),
        (("127.0.0.1", "127.0.0.2"), False),
        (("::1", "::2"), False),
        (("localhost", "::1"), False),
        (("", ""), False),
    ],
)
def test_a_port_is_shared_by_one_address_of_each_family(
    hosts: tuple[str, str], is_allowed: bool
) -> None:
    listeners = tuple(
        Listener(name, host, 9092, "PLAINTEXT")
        for name, host in zip(("PLAINTEXT", "OUTSIDE"), hosts, strict=True)
    )
    if is_allowed:
        check_distinct_ports("listeners", listeners)
    else:
        with pytest.raises(ConfigError, match="9092"):
            check_distinct_ports("listeners", listeners)


def test_any_number_of_listeners_leave_the_port_to_the_system() -> None:
    check_distinct_ports("listeners", tuple(Listener("A", "", 0, "PLAINTEXT") for _ in range(3)))


def test_protocol_map_is_read_without_regard_to_case() -> None:
    assert parse_protocol_map(" internal:plaintext, EXTERNAL:SASL_SSL ,") == {
        "INTERNAL": "PLAINTEXT",
        "EXTERNAL": "SASL_SSL",
    }


@pytest.mark.parametrize("text", ["PLAINTEXT", "A:B", ":PLAINTEXT"])
def test_what_is_no_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        parse_protocol_map(text)
