"""Overview, brokers and problems: figures, charts, settings, and what falls silent."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support import judge, processes, requests
from tests.support.apache import ApacheKafka
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, produce_values
from tests.support.web import WebProcess, post
from tests.support.wire import Wire

PAGES = ("", "brokers/", "brokers/1/", "problems/")


def seen(client: httpx.Client, path: str, words: str, seconds: float = 30) -> str:
    """The page once it says so: the collector looks every ten seconds."""
    text = ""

    def says() -> bool:
        nonlocal text
        answer = client.get(path)
        text = answer.text
        return answer.status_code == 200 and words in text

    processes.wait_until(says, seconds, f"{words!r} on {path}", every=0.2)
    return text


@pytest.fixture
def busy_topic(web: WebProcess, shared_odradek: OdradekBroker) -> str:
    """A topic with records, which the snapshot knows."""
    with Wire(shared_odradek.address) as wire:
        name = create_topic(wire)
        produce_values(wire, name, [b"x" * 1000] * 10)
    with web.client() as client:
        seen(client, f"topics/?q={name}", f"{name}</a>")
    return name


def test_the_overview_tells_figures_and_draws_charts(
    visit: Callable[..., Visitor], busy_topic: str
) -> None:
    page = visit("vera").page
    page.goto("")

    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    figures = page.get_by_role("region", name="Figures").first
    expect(figures).to_contain_text("Bytes out")
    expect(figures).to_contain_text(re.compile(r"Stored\s*[\d.]+ (B|KiB|MiB)"))
    expect(page.get_by_role("heading", name="Storage")).to_be_visible()
    expect(page.locator(".chart canvas")).to_have_count(2, timeout=30_000)

    # The same by keyboard and as a table: a canvas tells a screen reader nothing.
    chart = page.locator(".chart").first
    chart.locator(".chart-canvas").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator(".chart-reading")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d · in "))
    chart.locator("summary").click()
    expect(chart.get_by_role("columnheader")).to_have_text(["Time", "in", "out"])

    page.get_by_role("link", name="24 hours").click()
    expect(page).to_have_url(re.compile("range=24h"))
    screenshot(page, "overview")


def test_history_is_json_and_its_bounds_are_kept(web: WebProcess, busy_topic: str) -> None:
    with web.client("vera") as client:
        name = f"topic.size:{busy_topic}"
        answer: dict[str, Any] = {}

        def has_value() -> bool:
            answer.update(client.get("samples", params={"series": name}).json())
            return any(value for value in answer["series"][0]["values"])

        processes.wait_until(has_value, 30, "a sample", every=0.5)
        assert (answer["series"][0]["label"], answer["series"][0]["unit"]) == ("size", "bytes")
        assert len(answer["times"]) == len(answer["series"][0]["values"])
        assert client.get("samples").status_code == 400
        assert client.get("samples", params={"series": "a", "since": "9999999"}).status_code == 400
        assert client.get("samples", params={"series": ["a"] * 13}).status_code == 400


def test_a_dynamic_setting_is_changed_and_audited_by_an_admin_alone(
    visit: Callable[..., Visitor], web: WebProcess, busy_topic: str
) -> None:
    key = "log.cleaner.backoff.ms"
    page = visit("ada").page
    page.goto(f"brokers/1/?q={key}&shown=all")
    page.get_by_role("link", name=f"Change {key}").click()
    page.get_by_label("Value").fill("-7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Value").fill("16000")
    page.get_by_role("button", name="Save").click()

    row = page.get_by_role("row", name=key)
    expect(page.get_by_role("status").first).to_contain_text(f"{key} of all brokers was set")
    expect(row).to_contain_text("16000")
    expect(row).to_contain_text("all brokers")
    recorded = web.run_python(
        "from dashboard.models import AuditEntry\n"
        "for e in AuditEntry.objects.filter(action='broker.settings'):\n"
        "    print(e.actor_name, e.target, e.after, bool(e.failure))"
    )
    assert f"ada all brokers: {key} {{'{key}': '16000'}} False" in recorded
    assert f"ada all brokers: {key} {{'{key}': '-7'}} True" in recorded

    row.get_by_role("link").click()
    page.get_by_role("button", name="Remove what was set here").click()
    expect(page.get_by_role("row", name=key)).to_contain_text("default")
    with web.client("olga") as client:
        assert client.get(f"brokers/1/settings/{key}").status_code == 403
        assert post(client, f"brokers/1/settings/{key}", {"value": "1"}).status_code == 403
        assert client.get("brokers/77/").status_code == 404
    with web.client("ada") as client:
        client.get("account/password/")
        token = next(value for name, value in client.cookies.items() if name.endswith("_csrf"))
        client.headers["X-CSRFToken"] = token
        settings = "api/v1/brokers/1/settings"

        def told() -> tuple[str, str]:
            (found,) = (one for one in client.get(settings).json() if one["name"] == key)
            return found["value"], found["source"]

        usual = told()
        answer = client.put(f"{settings}/{key}", json={"value": "17000", "for_all": True})
        assert (answer.status_code, told()) == (200, ("17000", "DYNAMIC_DEFAULT_BROKER_CONFIG"))
        assert client.put(f"{settings}/{key}", json={"value": "-7"}).status_code == 422
        assert client.put(f"{settings}/no.such", json={"value": "1"}).status_code == 404
        answer = client.delete(f"{settings}/{key}", params={"for_all": True})
        assert (answer.status_code, told()) == (200, usual)


def test_a_partition_under_its_minimum_is_a_problem(
    visit: Callable[..., Visitor], web: WebProcess, shared_odradek: OdradekBroker
) -> None:
    with Wire(shared_odradek.address) as wire:
        name = create_topic(wire, configs={"min.insync.replicas": "2"})
        with web.client() as client:
            seen(client, "problems/", name)
        page = visit("vera").page
        page.goto("problems/?kind=under_min_isr")
        row = page.get_by_role("row").filter(has_text=name)
        expect(row).to_contain_text("Under min ISR")
        expect(row).to_contain_text("1 in sync, 2 asked for")
        page.goto("brokers/1/")
        page.get_by_role("link", name="of partitions with a replica here").click()
        expect(row).to_contain_text("Under min ISR")
        page.goto("problems/?broker=77")
        expect(
            page.get_by_text("No partition with a replica there has a problem.").first
        ).to_be_visible()
        page.goto("")
        expect(page.get_by_role("region", name="is the cluster's health")).to_contain_text(
            "under the minimum of in-sync replicas"
        )
        requests.delete_topic(wire, name)


@pytest.fixture
def own_web(tmp_path: Path) -> Iterator[tuple[OdradekBroker, WebProcess]]:
    """A broker that listens on every address, and a dashboard of its own."""
    port = judge.free_port()
    broker = OdradekBroker(tmp_path / "broker", {"listeners": f"PLAINTEXT://:{port}"})
    broker.port = port
    with broker, WebProcess(tmp_path, broker.bootstrap, data=broker.data) as web:
        yield broker, web


def test_every_row_of_a_silent_broker_says_since_when(
    own_web: tuple[OdradekBroker, WebProcess],
) -> None:
    broker, web = own_web
    with Wire(broker.address) as wire:
        name = create_topic(wire)
    with web.client() as client:
        seen(client, "topics/", name)
        text = seen(client, "", "asks nobody who they are")
        assert f"*:{broker.port}" in text
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            seen(client, "brokers/", "stale since")
            for path in (*PAGES, "topics/", "groups/"):
                answer = client.get(path)
                assert answer.status_code == 200, path
                assert "has not answered since" in answer.text, path
            assert "No broker answers" in client.get("").text
            for path in (f"topics/?q={name}", f"topics/{name}/"):
                assert "stale since" in client.get(path).text, path
            record = client.get(f"topics/{name}/0/0/")
            assert record.status_code == 200
            assert "of this partition has not answered since" in record.text
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        processes.wait_until(
            lambda: "stale since" not in client.get("brokers/").text, 30, "fresh rows", every=0.2
        )


@pytest.mark.slow
def test_every_page_of_the_area_works_on_apache_kafka(
    chromium: Any, shared_apache: ApacheKafka, tmp_path: Path
) -> None:
    with Wire(shared_apache.address) as wire:
        name = create_topic(wire)
        produce_values(wire, name, [b"x" * 100])
    with WebProcess(tmp_path, shared_apache.bootstrap) as web:
        with web.client() as client:
            seen(client, f"topics/?q={name}", f"{name}</a>")
        visitor = Visitor(chromium, web, "ada")
        page: Page = visitor.page
        page.goto("")
        expect(page.get_by_role("region", name="Figures").first).to_contain_text(
            "not told by this cluster"
        )
        page.get_by_role("link", name="Brokers").first.click()
        expect(page.get_by_role("row").nth(1)).to_contain_text("answers")
        page.get_by_role("row").nth(1).get_by_role("link").click()
        expect(page.get_by_text("not told by this cluster")).to_be_visible()
        expect(page.get_by_role("row", name="advertised.listeners")).to_be_visible()
        page.goto("problems/")
        expect(page.get_by_text("Every partition has a leader").first).to_be_visible()
        visitor.close()
