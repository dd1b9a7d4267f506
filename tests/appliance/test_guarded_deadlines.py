"""Clients that send a byte now and then, on a clock of the test: a deadline is not put off by bytes."""

from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from appliance.guarded_http import BODY_S, HEAD_S, GuardedFactory

PAUSE_S = 10


class Client:
    """One connection to a channel whose application never answers."""

    def __init__(self) -> None:
        server = SimpleNamespace(
            protocol_connected=lambda request: None,
            protocol_disconnected=lambda request: None,
        )
        factory = GuardedFactory(server)
        self.clock = factory.reactor = Clock()
        self.transport = StringTransport()
        self.channel = factory.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.channel.dataReceived(data)

    def dribble(self, seconds: int) -> None:
        """A byte each ten seconds, as long as it is listened to."""
        for _ in range(seconds // PAUSE_S):
            if self.transport.disconnecting:
                return
            self.send(b"x")
            self.clock.advance(PAUSE_S)


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX-"], ids=["nothing", "half a head"])
def test_a_head_has_its_time(begun: bytes) -> None:
    client = Client()
    client.send(begun)
    client.dribble(HEAD_S - PAUSE_S)
    assert not client.transport.disconnecting
    client.dribble(2 * PAUSE_S)
    assert client.transport.disconnecting


def test_a_body_has_more_time_and_no_more_than_that() -> None:
    client = Client()
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n")
    client.dribble(BODY_S - PAUSE_S)
    assert not client.transport.disconnecting
    client.dribble(2 * PAUSE_S)
    assert client.transport.disconnecting


def test_a_line_without_an_end_is_refused_in_words() -> None:
    client = Client()
    client.send(b"GET /?" + b"x" * 20_000)
    assert client.transport.value().startswith(b"HTTP/1.1 431 ")
    assert client.transport.disconnecting
