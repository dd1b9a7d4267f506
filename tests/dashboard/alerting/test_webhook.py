"""One attempt, against real sockets on loopback."""

import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from dashboard.alerting import webhook
from dashboard.alerting.outcome import Outcome
from tests.support.sinks import HttpSink, http_sink

SECRET = "s3cret-ä"


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as sink:
        yield sink


def send(url: str, body: bytes = b'{"a":1}', may_reach_private: bool = True) -> Outcome:
    return webhook.send(
        url,
        SECRET,
        body,
        uid="u-1",
        event="firing",
        may_reach_private=may_reach_private,
        now_ms=1_700_000_000_999,
        user_agent="Odradek/test",
    )


def test_what_arrives_is_signed_over_timestamp_and_body(sink: HttpSink) -> None:
    assert send(sink.url) == Outcome.sent("It answered 200")

    (request,) = sink.received
    assert request.path == "/hook?from=odradek"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == f"127.0.0.1:{sink.port}"
    assert request.headers["X-Odradek-Timestamp"] == "1700000000"
    expected = hmac.new(SECRET.encode(), b'1700000000.{"a":1}', hashlib.sha256).hexdigest()
    assert request.headers["X-Odradek-Signature"] == "sha256=" + expected
    assert request.headers["X-Odradek-Delivery"] == "u-1"
    assert request.headers["X-Odradek-Event"] == "firing"


def test_a_signature_by_the_vector_of_rfc_4231() -> None:
    # Test case 2: key "Jefe", data "what do ya want for nothing?"; ours has the dot inside.
    signed = webhook.signature("Jefe", "what do ya want for nothing?", b"")
    assert signed.startswith("sha256=")
    assert len(signed) == 7 + 64
    assert hmac.new(b"Jefe", b"what do ya want for nothing?", hashlib.sha256).hexdigest() == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(sink: HttpSink, status: int) -> None:
    sink.status, sink.location = status, sink.url

    outcome = send(sink.url)

    assert not outcome.is_sent
    assert outcome.is_lasting
    assert "redirects" in outcome.words
    assert len(sink.received) == 1


@pytest.mark.parametrize(
    ("status", "is_lasting"), [(400, True), (404, True), (408, False), (429, False), (503, False)]
)
def test_statuses_that_may_pass_are_tried_for_longer(
    sink: HttpSink, status: int, is_lasting: bool
) -> None:
    sink.status = status

    assert send(sink.url) == Outcome(False, f"It answered {status}", is_lasting)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_private_addresses_are_refused_before_anything_is_sent(sink: HttpSink, host: str) -> None:
    outcome = send(f"http://{host}:{sink.port}/", may_reach_private=False)

    assert not outcome.is_sent
    assert outcome.is_lasting
    assert "private address" in outcome.words
    assert sink.received == []


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "224.0.0.1", "0.0.0.0", "[::ffff:169.254.169.254]"]
)
def test_where_clouds_keep_credentials_nothing_goes_ever(host: str) -> None:
    outcome = send(f"http://{host}/latest/meta-data/")

    assert not outcome.is_sent
    assert outcome.is_lasting
    assert "no message may go" in outcome.words


def test_every_address_of_a_name_has_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(0, 0, 0, "", ("93.184.216.34", port)), (0, 0, 0, "", ("10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    with pytest.raises(webhook.BadAddress, match=r"10\.0\.0\.1"):
        webhook.checked_address("rebind.example", 80, may_reach_private=False)


@pytest.mark.parametrize(
    "url",
    ["ftp://a/", "http://", "http:///x", "file:///etc/passwd", "http://u:p@h/", "http://h/a b",
     "http://h/\r\nX: y", "http://h:99999/", "http://[::1/", "javascript:alert(1)"],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(webhook.BadAddress):
        webhook.parse(url)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        outcome = send(f"http://127.0.0.1:{unused.getsockname()[1]}/")

    assert not outcome.is_sent
    assert not outcome.is_lasting
    assert "refused" in outcome.words


def test_a_receiver_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TOTAL_TIMEOUT_S", 0.5)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not is_over.wait(0.05):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        outcome = send(f"http://127.0.0.1:{server.getsockname()[1]}/")
        is_over.set()
        thread.join()

    assert outcome == Outcome.failed("It did not answer in time")
    assert time.monotonic() - began < webhook.READ_TIMEOUT_S


def test_an_answer_that_never_ends_is_not_read(sink: HttpSink) -> None:
    """The body is the receiver's own affair: a status is enough."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def flood() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        connection.sendall(b"x" * 65536)
                except OSError:
                    return

        thread = threading.Thread(target=flood)
        thread.start()
        outcome = send(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()

    assert outcome.is_sent
