"""Behind a reverse proxy with a path prefix, be it stripped or kept; and whose address is counted."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.odradek import OdradekBroker
from tests.support.proxy import ReverseProxy
from tests.support.web import PASSWORD, WebProcess

PREFIX = "/tools/odradek"


@pytest.fixture(scope="module")
def prefixed(
    shared_odradek: OdradekBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebProcess]:
    settings = {"root_path": PREFIX, "trusted_proxies": "1"}
    with WebProcess(
        tmp_path_factory.mktemp("prefixed"), shared_odradek.bootstrap, settings
    ) as process:
        yield process


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert found is not None
    return found[1]


def handshake(proxy: ReverseProxy, path: str, cookie: str) -> bytes:
    """The first line of the answer to a WebSocket's request."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
        connection.sendall(
            (
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nOrigin: http://127.0.0.1:{proxy.port}\r\n"
                f"Cookie: {cookie}\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            ).encode()
        )
        return connection.makefile("rb").readline()


@pytest.mark.parametrize("strips", [True, False], ids=["strips", "keeps"])
def test_pages_forms_files_and_sockets_work_behind_a_prefix(
    prefixed: WebProcess, strips: bool
) -> None:
    with (
        ReverseProxy(prefixed.port, PREFIX, strips=strips) as proxy,
        httpx.Client(timeout=30, follow_redirects=True) as client,
    ):
        page = client.get(f"{proxy.url}/topics/")
        assert page.url.path == f"{PREFIX}/login/"
        assert page.url.params["next"] == f"{PREFIX}/topics/"
        form = {"username": "ada", "password": PASSWORD, "next": page.url.params["next"]}
        page = client.post(str(page.url), data={**form, "csrfmiddlewaretoken": token_in(page)})
        assert (page.status_code, page.url.path) == (200, f"{PREFIX}/topics/")
        links = re.findall(r'(?:href|src|action|hx-get)="(/[^"]*)"', page.text)
        assert len(links) > 10
        assert [link for link in links if not link.startswith(f"{PREFIX}/")] == []
        files = [link for link in links if "/static/" in link]
        assert files
        for link in files:
            assert client.get(f"http://127.0.0.1:{proxy.port}{link}").status_code == 200
        # Without the slash at its end, too.
        assert client.get(proxy.url).url.path in (PREFIX, f"{PREFIX}/")
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        answer = handshake(proxy, f"{PREFIX}/tail/socket/", cookie)
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        assert b" 403 " in handshake(proxy, f"{PREFIX}/elsewhere/", cookie)


def test_lockout_counts_the_client_that_the_proxy_saw_whatever_the_client_claims(
    prefixed: WebProcess,
) -> None:
    def sign_in(password: str, claim: str) -> httpx.Response:
        with httpx.Client(timeout=30, headers={"X-Forwarded-For": claim}) as client:
            token = token_in(client.get(f"{proxy.url}/login/"))
            form = {"username": "vera", "password": password, "csrfmiddlewaretoken": token}
            return client.post(f"{proxy.url}/login/", data=form)

    with ReverseProxy(prefixed.port, PREFIX, strips=True) as proxy:
        # Every try claims to come from elsewhere; all are one client's.
        for number in range(10):
            sign_in("wrong", f"203.0.113.{number}")
        assert sign_in(PASSWORD, "203.0.113.99").status_code in (403, 429)
        found = prefixed.run_python(
            "from dashboard.models import AuditEntry\n"
            "print(*AuditEntry.objects.filter(action='user.lockout').values_list('address'))"
        )
        assert "127.0.0.1" in found
        assert "203.0.113" not in found


def test_the_prefix_is_no_condition_for_probes(prefixed: WebProcess) -> None:
    base = urlsplit(prefixed.url)
    for path in ("/healthz", f"{PREFIX}/healthz", "/readyz", f"{PREFIX}/readyz"):
        answer = httpx.get(f"http://{base.netloc}{path}", timeout=30)
        assert answer.status_code == 200, Path(path)
