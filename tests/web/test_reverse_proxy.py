"""Behind a real nginx and a real Caddy, set up as docs/reverse_proxy.md says: TLS ends in them, and a
path prefix stands before everything."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from playwright.sync_api import expect

from dashboard.gateway import Gateway
from tests.support import judge, real_proxies
from tests.support.browser import Visitor
from tests.support.odradek import OdradekBroker
from tests.support.real_proxies import HOST, PREFIX, Proxy
from tests.support.web import PASSWORD, WebProcess
from tests.support.websocket import Refused, WebSocket

EXPORT = """
import sys
from dashboard.jobs import export
from dashboard.models import JobRun, User
from dashboard.scan.requests import Range, Wanted
from dashboard.services import audit, exports
class Context:
    def __init__(self, run):
        self.run_id, self.target, self.parameters = run.pk, run.target, run.parameters
    def progress(self, done, total=None, text=""):
        pass
actor = audit.Actor("vera", "page", User.objects.get(username="vera"))
run = exports.start(actor=actor, chosen=Range(sys.argv[1], (), "oldest", 0, None, "forward"),
                    wanted=Wanted("", "", "", ""), format_="ndjson")
run.result, run.state = export.run(Context(run)), "ok"
run.save()
print(run.pk)
"""


@dataclass(frozen=True)
class Scene:
    web: WebProcess
    proxy: Proxy

    def client(self, user: str | None = None, **headers: str) -> httpx.Client:
        """As a browser comes in: by the public name, over TLS."""
        cookies = {self.web.cookie_name: self.web.sessions[user]} if user else {}
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.proxy.port}{PREFIX}/",
            headers={"Host": f"{HOST}:{self.proxy.port}", **headers},
            cookies=cookies,
            verify=self.proxy.context(),
            timeout=30,
        )

    def sign_in(
        self, client: httpx.Client, name: str, password: str, origin: str
    ) -> httpx.Response:
        page = client.get("login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token[1]}
        return client.post("login/", data=form, headers={"Origin": origin})


@pytest.fixture(scope="module", params=["nginx", pytest.param("caddy", marks=pytest.mark.slow)])
def scene(
    request: pytest.FixtureRequest,
    shared_odradek: OdradekBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp(request.param)
    port = judge.free_port()
    settings = {
        "root_path": PREFIX,
        "public_url": f"https://{HOST}:{port}{PREFIX}",
        "trusted_proxies": "1",
    }
    with (
        WebProcess(directory / "web", shared_odradek.bootstrap, settings) as web,
        real_proxies.running(request.param, directory / "proxy", port, web.port) as proxy,
    ):
        yield Scene(web, proxy)


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_a_person_signs_in_changes_something_and_watches_records_arrive(
    scene: Scene,
    chromium: Any,
    shared_odradek: OdradekBroker,
    new_topic_name: Callable[[], str],
) -> None:
    topic = new_topic_name()
    Gateway(shared_odradek.bootstrap).create_topics([topic], partitions=1)
    visitor = Visitor(
        chromium, scene.web, None, origin=scene.proxy.origin, ignore_https_errors=True
    )
    page = visitor.page
    page.goto("topics/")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(rf"^{re.escape(scene.proxy.url)}/topics/"))
    cookies = {cookie["name"]: cookie for cookie in visitor.context.cookies()}
    session = cookies[scene.web.cookie_name]
    assert (session["secure"], session["httpOnly"], session["path"]) == (True, True, PREFIX)
    assert cookies[f"{scene.web.cookie_name}_csrf"]["secure"]
    page.goto(f"tail/?topic={topic}")
    expect(page.locator("#tail-pause")).to_be_enabled(timeout=30_000)
    expect(page.locator("#tail-status")).to_contain_text("Live", timeout=30_000)
    produce(shared_odradek.bootstrap, topic, ["through the proxy"])
    expect(page.locator("#tail-rows")).to_contain_text("through the proxy", timeout=30_000)
    visitor.close()


def test_forms_and_sockets_of_other_origins_are_refused(scene: Scene) -> None:
    with scene.client() as client:
        assert (
            scene.sign_in(client, "olga", PASSWORD, "https://elsewhere.example").status_code == 403
        )
        # The same host without TLS is another origin.
        plain = scene.proxy.origin.replace("https:", "http:")
        assert scene.sign_in(client, "olga", PASSWORD, plain).status_code == 403
        assert scene.sign_in(client, "olga", PASSWORD, scene.proxy.origin).status_code == 302
        page = client.get("login/")
        assert page.headers["strict-transport-security"].startswith("max-age=")
        moved = client.get(client.base_url.copy_with(path=PREFIX))
        assert moved.headers["location"].endswith(f"{PREFIX}/")

    async def try_origin(origin: str) -> None:
        session = f"{scene.web.cookie_name}={scene.web.sessions['vera']}"
        socket = await WebSocket.open(
            f"https://127.0.0.1:{scene.proxy.port}{PREFIX}/tail/socket/",
            origin=origin,
            headers={"Cookie": session, "Host": f"{HOST}:{scene.proxy.port}"},
            tls=scene.proxy.context(),
        )
        await socket.close()

    asyncio.run(try_origin(scene.proxy.origin))
    for other in (plain, "https://elsewhere.example", f"https://{HOST}"):
        with pytest.raises(Refused) as refused:
            asyncio.run(try_origin(other))
        assert refused.value.status == 403


def test_lockout_and_audit_have_the_address_that_the_proxy_saw(scene: Scene) -> None:
    for number in range(10):
        # Each claims to be somebody else; the tenth shuts them all out.
        with scene.client(**{"X-Forwarded-For": f"203.0.113.{number}"}) as client:
            answer = scene.sign_in(client, "vera", "wrong", scene.proxy.origin)
            assert answer.status_code == (200 if number < 9 else 429)
    with scene.client(**{"X-Forwarded-For": "203.0.113.99"}) as client:
        assert scene.sign_in(client, "vera", PASSWORD, scene.proxy.origin).status_code == 429
    found = scene.web.run_python(
        "import json\nfrom dashboard.models import AuditEntry\n"
        "rows = AuditEntry.objects.exclude(address='').values_list('address', flat=True)\n"
        "print(json.dumps(sorted(set(rows))))"
    )
    assert json.loads(found) == ["127.0.0.1"]


def test_a_download_goes_on_where_it_was_broken_off(
    scene: Scene, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic_name()
    Gateway(shared_odradek.bootstrap).create_topics([topic], partitions=1)
    produce(shared_odradek.bootstrap, topic, [f"{number:05d}" * 40 for number in range(3000)])
    run = int(scene.web.run_python(EXPORT, topic))
    with scene.client("vera", **{"Accept-Encoding": "gzip"}) as client:
        whole = client.get(f"exports/{run}/file/")
        size = int(whole.headers["content-length"])
        assert (whole.status_code, len(whole.content)) == (200, size)
        assert len(whole.text.splitlines()) == 3000
        middle = client.get(
            f"exports/{run}/file/",
            headers={"Range": f"bytes={size // 2}-", "If-Range": whole.headers["etag"]},
        )
        assert middle.status_code == 206
        assert middle.headers["content-range"] == f"bytes {size // 2}-{size - 1}/{size}"
        assert middle.content == whole.content[size // 2 :]
        changed = client.get(
            f"exports/{run}/file/", headers={"Range": "bytes=10-19", "If-Range": '"other"'}
        )
        assert (changed.status_code, len(changed.content)) == (200, size)
        beyond = client.get(f"exports/{run}/file/", headers={"Range": f"bytes={size}-"})
        assert beyond.status_code == 416


def test_what_is_too_large_is_refused_with_odradek_s_own_words(scene: Scene) -> None:
    with scene.client("ada") as client:
        answer = client.post("account/preferences/", content=b"x" * 8_500_000)
    assert (answer.status_code, answer.text) == (413, "A request may hold 8 MiB at most.\n")
