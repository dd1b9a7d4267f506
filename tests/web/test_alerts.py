"""Alerts as people meet them: a broker that stops and comes back, a real HTTP and a real SMTP sink."""

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.processes import wait_until
from tests.support.sinks import HttpSink, Received, SmtpSink, http_sink, smtp_sink
from tests.support.web import WebProcess, post


@dataclass
class Scene:
    broker: OdradekBroker
    web: WebProcess
    hook: HttpSink
    mails: SmtpSink

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """While somebody looks, as a person would: the collector keeps its quick pace."""
        with self.web.client("vera") as client:

            def look() -> bool:
                client.get("alerts/open/")
                client.get("")
                return condition()

            wait_until(look, 90, what, every=0.25)

    def subjects(self, word: str) -> list[str]:
        found = [" ".join(mail.message["subject"].split()) for mail in self.mails.mails]
        return [subject for subject in found if word in subject]

    def kill_web(self) -> None:
        assert self.web.process is not None
        self.web.process.kill()
        self.web.process.wait()
        self.web.process = None


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with (
        http_sink() as hook,
        smtp_sink() as mails,
        OdradekBroker(tmp_path / "broker") as broker,
        WebProcess(
            tmp_path / "web",
            broker.bootstrap,
            {"smtp_host": "127.0.0.1", "smtp_port": str(mails.port), "smtp_from": "o@example.org"},
        ) as web,
    ):
        yield Scene(broker, web, hook, mails)


def openssl_hmac(secret: str, data: bytes) -> str:
    """Computed by somebody else than us."""
    done = subprocess.run(
        [
            "openssl",
            "dgst",
            "-sha256",
            "-mac",
            "HMAC",
            "-macopt",
            f"hexkey:{secret.encode().hex()}",
        ],
        input=data,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip().rpartition(" ")[2]


def assert_signed(request: Received, secret: str) -> None:
    timestamp = request.headers["X-Odradek-Timestamp"]
    expected = openssl_hmac(secret, timestamp.encode() + b"." + request.body)
    assert request.headers["X-Odradek-Signature"] == f"sha256={expected}"
    assert request.headers["X-Odradek-Delivery"] == request.json["id"]


def add_webhook(page: Page, url: str) -> str:
    """Through the pages; returns the secret that is shown once."""
    page.goto("alerts/")
    page.get_by_role("link", name="Add webhook").click()
    page.get_by_label("Name").fill("Pager")
    page.get_by_label("Address", exact=True).fill(url)
    page.get_by_label("May reach private addresses").check()
    page.get_by_role("button", name="Save").click()
    secret = page.locator("#secret").inner_text()
    page.get_by_role("link", name="Go on to the channel").click()
    expect(page.get_by_role("heading", name="Channel: Pager")).to_be_visible()
    assert secret not in page.content()
    return secret


def add_mail(page: Page) -> None:
    page.goto("alerts/")
    page.get_by_role("link", name="Add e-mail").click()
    page.get_by_label("Name").fill("On call")
    page.get_by_label("Recipients").fill("ops@example.com, boss@example.com")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_text("The test was sent.")).to_be_visible(timeout=15_000)


def make_rule_quick(page: Page) -> None:
    page.goto("alerts/")
    page.get_by_role("link", name="Broker does not answer").click()
    page.get_by_label("Fires after it has been so for").fill("0")
    page.get_by_label("Resolved after it has been over for").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name="any broker gives no answer", exact=True)).to_be_visible()


@pytest.mark.timeout(240)
def test_a_broker_that_stops_and_comes_back_is_told_once_each_even_over_a_restart(
    scene: Scene, chromium: object
) -> None:
    hook, visitor = scene.hook, Visitor(chromium, scene.web, "ada")  # type: ignore[arg-type]
    page = visitor.page
    secret = add_webhook(page, hook.url)
    add_mail(page)
    make_rule_quick(page)
    page.goto("about:blank")

    # The receiver fails first, and the web process dies while it still owes the message.
    hook.status = 503
    scene.broker.stop()
    scene.wait(lambda: bool(scene.subjects("FIRING")), "a mail that it fires")
    scene.wait(lambda: any(one.status == 503 for one in hook.received), "a refused message")
    with scene.web.client("vera") as client:
        wait_until(
            lambda: "It answered 503" in client.get("alerts/deliveries/").text, 30, "the outcome"
        )
    scene.kill_web()
    hook.status = 200
    scene.web.start()
    scene.wait(lambda: bool(hook.accepted("firing")), "the message, after the restart")

    page.goto("alerts/")
    firing = page.get_by_role("row", name=re.compile("The cluster does not answer"))
    expect(firing).to_contain_text("Critical")
    expect(page.get_by_role("link", name="Alerts 1 firing")).to_be_visible()
    screenshot(page, "alerts")
    page.goto("")
    health = page.locator(".health")
    expect(health).to_contain_text("Unhealthy")
    expect(health).to_contain_text("1 critical alert fires: The cluster does not answer")
    expect(health.get_by_role("link", name="Alerts")).to_be_visible()
    # This process has never seen the cluster: no figure says that nothing is offline.
    expect(page.get_by_role("region", name="Figures")).to_have_count(0)
    screenshot(page, "overview_firing")
    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(color_scheme="dark")
    screenshot(page, "overview_firing-dark-390")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("about:blank")

    scene.broker.start()
    scene.wait(lambda: bool(hook.accepted("resolved")), "the end, at the webhook")
    scene.wait(lambda: bool(scene.subjects("RESOLVED")), "the end, by mail")

    # A broker that answers late while the machine is busy makes an alert of its own.
    number = hook.accepted("firing")[0]["alerts"][0]["id"]
    own = [body for body in hook.accepted() if body["alerts"][0]["id"] == number]
    assert [body["event"] for body in own] == ["firing", "resolved"]
    about = scene.subjects("FIRING")[0].partition("FIRING")[2]
    for word in ("FIRING", "RESOLVED"):
        assert [subject.endswith(about) for subject in scene.subjects(word)].count(True) == 1
    fired, resolved = own
    assert resolved["alerts"][0]["state"] == "resolved"
    assert fired["text"].startswith("FIRING (critical): Broker does not answer\n")
    for request in hook.received:
        assert_signed(request, secret)
    attempts = {
        one.json["id"]
        for one in hook.received
        if one.json["event"] == "firing" and one.json["alerts"][0]["id"] == number
    }
    assert len(attempts) == 1, "the same message, tried again"
    assert scene.mails.mails[-1].recipients == ["ops@example.com", "boss@example.com"]

    page.goto("alerts/history/?severity=critical&target=cluster")
    expect(page.get_by_role("row", name=re.compile("The cluster does not answer"))).to_contain_text(
        "after"
    )
    page.goto("alerts/deliveries/")
    expect(page.get_by_text("before: It answered 503")).to_be_visible()
    visitor.close()
    assert_audited(scene.web, secret)


def assert_audited(web: WebProcess, secret: str) -> None:
    code = """
from dashboard.models import AuditEntry
for entry in AuditEntry.objects.filter(action__startswith="alert"):
    print(entry.action, entry.actor_name, entry.target, entry.before, entry.after)
"""
    told = web.run_python(code)
    assert secret not in told
    actions = sorted(line.split()[0] for line in told.splitlines())
    assert actions == [
        "alert_channel.create", "alert_channel.create", "alert_channel.test", "alert_rule.change",
    ]  # fmt: skip


def test_viewers_see_alerts_and_change_nothing(web: WebProcess) -> None:
    with web.client("vera") as vera, web.client("olga") as olga:
        assert "Switch off" not in vera.get("alerts/").text
        for path in ("alerts/rules/1/", "alerts/rules/new/?kind=group_lag", "alerts/silences/new/"):
            assert vera.get(path).status_code == 403, path
        for path in (
            "alerts/rules/1/switch/", "alerts/rules/1/delete/", "alerts/channels/1/test/",
            "alerts/channels/1/secret/", "alerts/channels/1/delete/", "alerts/silences/1/end/",
        ):  # fmt: skip
            assert post(vera, path, {}).status_code == 403, path
            assert olga.get(path).status_code == 405, path


def test_an_operator_may_not_open_the_way_to_private_addresses(web: WebProcess) -> None:
    form = {"name": "inner", "url": "http://10.0.0.1/", "is_on": "on", "may_reach_private": "on"}

    with web.client("olga") as client:
        answer = post(client, "alerts/channels/new/?kind=webhook", form)

    assert "Secret of inner" in answer.text
    code = "from dashboard.models import AlertChannel as C; print(C.objects.get(name='inner').may_reach_private)"
    assert web.run_python(code).strip() == "False"


def test_a_rule_is_made_silenced_and_deleted_by_hand(visit: Callable[..., Visitor]) -> None:
    page = visit("olga").page
    page.goto("alerts/")
    page.get_by_label("New rule about").select_option(label="Consumer group lags")
    page.get_by_role("button", name="Add rule").click()
    page.get_by_label("Name").fill("Payments lag")
    page.get_by_label("Which groups").fill("payments-*")
    page.get_by_label("Lag over").fill("600")
    page.get_by_role("button", name="Save").click()
    words = "consumer lag of any group like payments-* is over 10 min for 5 min"
    expect(page.get_by_role("cell", name=words)).to_be_visible()

    page.get_by_role("link", name="Silence alerts").click()
    page.get_by_label("Rule").select_option(label="Payments lag")
    page.get_by_label("Reason").fill("Migration <b>tonight</b>")
    page.get_by_role("button", name="Silence").click()
    expect(page.get_by_role("row", name=re.compile("Payments lag .*Migration <b>"))).to_be_visible()
    page.get_by_role("button", name="End the silence of *").click()
    expect(page.get_by_text("Migration")).to_have_count(0)

    page.get_by_role("button", name="Switch off Payments lag").click()
    expect(page.get_by_text("Rule Payments lag is off.")).to_be_visible()
    page.get_by_role("link", name="Payments lag").click()
    page.get_by_role("button", name="Delete this rule").click()
    expect(page.get_by_text("Rule Payments lag deleted.")).to_be_visible()
