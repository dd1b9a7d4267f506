"""Clients that mean no good, against the real web process: it answers everybody else, and does not grow."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from appliance.guarded_http import MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_THROWN_AWAY_BYTES
from tests.support import processes
from tests.support.web import WebProcess, post
from tests.support.websocket import BINARY, Closed, WebSocket

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with WebProcess(tmp_path_factory.mktemp("web"), "127.0.0.1:1") as web:
        yield web


def connect(web: WebProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", web.port), timeout=30)


def head(web: WebProcess, *lines: str, method: str = "POST") -> bytes:
    first = (f"{method} /login/ HTTP/1.1", f"Host: 127.0.0.1:{web.port}")
    return "\r\n".join((*first, *lines, "", "")).encode()


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


def anonymous_kib(web: WebProcess) -> int:
    return processes.status_kib(web.pid, "RssAnon")


def test_a_body_that_is_too_large_is_refused_and_never_kept(web: WebProcess) -> None:
    before = anonymous_kib(web)
    for extra in (1, 8 * MIB):
        refused = httpx.post(f"{web.url}/login/", content=b"x" * (MAX_BODY_BYTES + extra))
        assert refused.status_code == 413
        assert refused.text == "A request may hold 8 MiB at most.\n"
    assert anonymous_kib(web) - before < 10 * 1024
    with web.client() as client:
        # What fits gets as far as the form.
        assert post(client, "account/preferences/", {"x": "y" * (7 * MIB)}).status_code == 200


def test_a_body_beyond_all_reason_is_refused_before_it_comes(web: WebProcess) -> None:
    with connect(web) as connection:
        connection.sendall(head(web, f"Content-Length: {MAX_THROWN_AWAY_BYTES + 1}"))
        assert answer(connection).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_ends_at_the_bound_too(web: WebProcess) -> None:
    with connect(web) as connection:
        connection.sendall(head(web, "Transfer-Encoding: chunked"))
        piece = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB)
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_THROWN_AWAY_BYTES // MIB + 8):
                connection.sendall(piece)
        assert answer(connection)[:13] in (b"HTTP/1.1 413 ", b"")
    assert httpx.get(f"{web.url}/login/").status_code == 200


def test_a_form_of_a_million_fields_costs_its_sender_alone(web: WebProcess) -> None:
    """Twisted would take it apart on the loop, for everybody to wait."""
    form = b"&".join(b"%d=" % number for number in range(700_000))
    refused = httpx.post(
        f"{web.url}/login/",
        content=form,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        timeout=60,
    )
    assert refused.status_code in (400, 403)


def test_long_heads_are_refused_and_ten_thousand_bytes_of_them_are_none(web: WebProcess) -> None:
    asked = [f"X-{number}: {'y' * 90}" for number in range(100)]
    with connect(web) as connection:
        connection.sendall(head(web, *asked, "Connection: close", method="GET"))
        assert answer(connection).startswith(b"HTTP/1.1 200 ")
    with connect(web) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(web, *asked, *asked, method="GET"))
        assert answer(connection)[:13] in (b"HTTP/1.1 400 ", b"")


@pytest.mark.slow
def test_for_one_connection_too_many_the_one_that_was_idle_for_longest_goes(
    web: WebProcess,
) -> None:
    before = anonymous_kib(web)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(web)) for _ in range(MAX_CONNECTIONS + 20)]
        # Half a head is as idle as none.
        idle[-1].sendall(b"GET /login/ HTTP/1.1\r\n")
        with web.client() as client:
            assert client.get("account/password/").status_code == 200
        assert answer(idle[0]) == b""
        idle[-1].sendall(b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert answer(idle[-1]).startswith(b"HTTP/1.1 ")
        assert anonymous_kib(web) - before < 40 * 1024


def test_a_frame_of_ten_megabytes_ends_its_websocket_alone(web: WebProcess) -> None:
    async def scene() -> int:
        headers = {"Cookie": f"{web.cookie_name}={web.sessions['vera']}"}
        address = f"{web.url}/tail/socket/"
        bad = await WebSocket.open(address, origin=web.url, headers=headers)
        good = await WebSocket.open(address, origin=web.url, headers=headers)
        bad.send_bytes(BINARY, bytes(10 * MIB))
        with pytest.raises(Closed) as closed:
            await bad.receive()
        good.send_json({"type": "pause"})
        await good.close()
        return closed.value.code

    before = anonymous_kib(web)
    assert asyncio.run(scene()) in (1009, 1006)
    assert anonymous_kib(web) - before < 10 * 1024


def test_a_half_sent_request_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with WebProcess(tmp_path, "127.0.0.1:1") as web, connect(web) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert httpx.get(f"{web.url}/healthz").status_code == 200
        assert web.process is not None
        assert processes.end(web.process, signal.SIGTERM, 30) == 0
