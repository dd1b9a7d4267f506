import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import probe


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Accepts one connection and answers it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()
        thread.join()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_an_answer_is_read_in_pieces() -> None:
    body = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhhhhh", 0, 0, 13, 75, 0, 0)

    def answer(connection: socket.socket) -> None:
        request = connection.recv(100)
        assert request[4:8] == struct.pack(">hh", 18, 0)
        for byte in frame(body):
            connection.sendall(bytes([byte]))

    with server(answer) as address:
        ranges = probe.ask_api_versions(address, 10)
    assert ranges.serves(0, 13)
    assert not ranges.serves(0, 14)
    assert ranges.serves(75, 0)
    assert not ranges.serves(99, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(struct.pack(">ihi", 2, 0, 0)),
        frame(struct.pack(">ihi", 1, 35, 0)),
        frame(struct.pack(">ihi", 1, 0, 1000)),
        frame(struct.pack(">ihi", 1, 0, -5)),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        frame(struct.pack(">ihi", 1, 0, 1))[:-2],
    ],
)
def test_what_does_not_speak_kafka_is_an_error(data: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(data)

    with server(answer) as address, pytest.raises(OSError):
        probe.ask_api_versions(address, 10)


@given(st.binary(min_size=10, max_size=80))
def test_no_answer_does_more_than_raise(body: bytes) -> None:
    try:
        probe._parse(body)
    except probe.ProbeError:
        return


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("9093", ("127.0.0.1", 9093)),
        (":9093", ("127.0.0.1", 9093)),
        ("host", ("host", 9092)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert probe.split_address(text) == expected


@pytest.mark.parametrize("text", ["host:", "host:x", "host:0", "host:65536", "::1:9092", "1:2:3"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write an IPv6|is not HOST:PORT"):
        probe.split_address(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)]
    + [(host, False) for host in ("", "0.0.0.0", "::", "10.0.0.1", "node.example")],
)
def test_only_this_machine_reaches_loopback(host: str, expected: bool) -> None:
    assert probe.is_loopback(host) is expected
