"""Records in the browser: pages both ways, filters, one record, a scan that is stopped, exports."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from broker.clock import SystemClock
from dashboard.gateway import Gateway
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.web import WebProcess, post

NewName = Callable[[], str]
Visit = Callable[..., Visitor]
SignIn = Callable[..., httpx.Client]
BIG = 9007199254740993
HOSTILE = "<img src=x onerror=alert(1)>{{ 7*7 }}\u202e"
# 200,000 turns of the inner macro for a record: tens of milliseconds, for a compiled engine too.
SLOW_FILTER = "json.all(x, !json.exists(y, x == y + 1))"
SLOW_VALUE = json.dumps([1] * 450).encode()
MAKE_READER = """
import json, sys
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from dashboard.models import User
user = User.objects.create_user(sys.argv[1], password="x", role="viewer",
                                readable_topics=sys.argv[2], exportable_topics=sys.argv[3])
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(session.session_key)
"""
RUN_EXPORTS = """
import sys
from dashboard.jobs import export
from dashboard.models import JobRun
class Context:
    def __init__(self, run):
        self.run_id, self.target, self.parameters = run.pk, run.target, run.parameters
    def progress(self, done, total=None, text=""):
        pass
for run in JobRun.objects.filter(job="export", target__startswith=sys.argv[1], state="queued"):
    run.result = export.run(Context(run))
    run.state = "ok"
    run.save()
"""
AUDIT = """
import json, sys
from dashboard.models import AuditEntry
print(json.dumps(list(AuditEntry.objects.filter(target__startswith=sys.argv[1], source="page").order_by("id").values_list("action", flat=True))))
"""


@pytest.fixture
def sign_in(web: WebProcess) -> Iterator[SignIn]:
    """HTTP clients that are closed at the end."""
    with contextlib.ExitStack() as clients:
        yield lambda user: clients.enter_context(web.client(user))


@pytest.fixture
def gateway(shared_odradek: OdradekBroker) -> Gateway:
    gateway = Gateway(shared_odradek.bootstrap)
    gateway.check()
    return gateway


@pytest.fixture
def topic(gateway: Gateway, shared_odradek: OdradekBroker, new_topic_name: NewName) -> str:
    """120 records in three partitions, and on top of them what is hard to show."""
    name = new_topic_name()
    gateway.create_topics([name], partitions=3)
    producer = Producer({"bootstrap.servers": shared_odradek.bootstrap})
    now_ms = SystemClock().wall_ms()
    for number in range(120):
        value = json.dumps({"n": number, "big": BIG, "city": "Berlin" if number % 2 else "Paris"})
        producer.produce(
            name, value, f"k{number}", partition=number % 3, timestamp=now_ms - 1_000 + number
        )
    for partition, (key, hard) in enumerate(
        ((HOSTILE, HOSTILE), ("large", "x" * 300_000), ("tombstone", None))
    ):
        headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None)]
        producer.produce(name, hard, key, partition, timestamp=now_ms + partition, headers=headers)
    assert producer.flush(30) == 0
    return name


def numbers(page: Page) -> list[int]:
    """Of the records that are listed, from top to bottom."""
    texts = page.locator("#rows td.value summary code").all_inner_texts()
    return [json.loads(text)["n"] for text in texts if text.startswith("{")]


def whole(page: Page) -> Page:
    """Once the search is over."""
    expect(page.locator("#scan-pager nav")).to_be_visible(timeout=30_000)
    return page


def test_records_are_paged_both_ways_and_shown_as_what_they_are(
    visit: Visit, web: WebProcess, topic: str
) -> None:
    page = visit("vera").page
    page.goto(f"topics/{topic}/messages/?rows=50")
    first = numbers(whole(page))
    assert first == list(range(119, 72, -1))
    rows = page.locator("#rows")
    expect(rows).to_contain_text("<img src=x onerror=alert(1)>{{ 7*7 }}\\u202e")
    expect(rows.locator("tr", has_text="tombstone").locator("td.value")).to_have_text("null")
    large = rows.locator("tr", has_text="large").locator("td.value details")
    large.locator("summary").click()
    expect(large).to_contain_text("293 KiB, text, cut")
    screenshot(page, "messages")

    page.get_by_role("link", name="Older").click()
    second = numbers(whole(page))
    assert second == list(range(72, 22, -1))
    page.get_by_role("link", name="Newer").click()
    assert numbers(whole(page)) == first
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name="Older").click()
    assert numbers(whole(page)) == list(range(22, -1, -1))
    expect(page.locator("#scan-status")).to_contain_text("That is all, up to the oldest record")
    expect(page.get_by_role("link", name="Older")).to_have_count(0)

    page.goto(f"topics/{topic}/messages/?start=offset&at=10&partition=1")
    assert numbers(whole(page))[:3] == [31, 34, 37]
    page.get_by_role("link", name="Older").click()
    assert numbers(whole(page)) == list(range(1, 31, 3))


def test_a_filter_is_checked_while_it_is_typed_and_then_found_by(visit: Visit, topic: str) -> None:
    page = visit("vera").page
    page.goto(f"topics/{topic}/messages/")
    whole(page)
    field = page.get_by_label("and this expression is true")
    said = page.locator("#filter-check")
    field.press_sequentially("json.big == 9007199254740993 && json.n <")
    expect(said).to_contain_text("line 1, column", timeout=15_000)
    field.press_sequentially(" 118 && value.matches('(a+)+$|Ber')")
    expect(said).to_contain_text("Matches", timeout=15_000)
    expect(said).to_contain_text("of 20 sample records")
    expect(said).to_contain_text("1 could not be evaluated")
    page.get_by_label("Key contains").fill("k1")
    page.get_by_role("button", name="Search").click()

    assert numbers(whole(page)) == [
        117,
        115,
        113,
        111,
        109,
        107,
        105,
        103,
        101,
        19,
        17,
        15,
        13,
        11,
        1,
    ]
    expect(page.locator("#scan-status")).to_contain_text("15 shown of 123 records looked at")


def test_a_record_has_a_page_of_its_own_with_neighbours_and_its_bytes(
    visit: Visit, web: WebProcess, topic: str, sign_in: SignIn
) -> None:
    page = visit("olga").page
    page.goto(f"topics/{topic}/0/40/")
    expect(page.locator("pre").first).to_have_text("<img src=x onerror=alert(1)>{{ 7*7 }}\\u202e")
    headers = page.locator("dl.facts.small")
    assert headers.locator("dt").all_inner_texts() == ["h", "h"]
    assert headers.locator("dd").all_inner_texts() == ["1", "null"]
    expect(page.get_by_role("link", name="Produce again").first).to_have_attribute(
        "href", f"/topics/{topic}/produce/?from=0:40"
    )
    page.get_by_role("link", name="‹ 39").click()
    expect(page.locator("pre").last).to_contain_text(f'"big": {BIG},\n  "city": "Berlin"')
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("pre").first).to_have_text(
        "00000000  6b 31 31 37                                       k117"
    )
    screenshot(page, "record")

    client = sign_in("vera")
    shown = client.get(f"/topics/{topic}/1/40/").text
    everything = client.get(f"/topics/{topic}/1/40/?all=1").text
    raw = client.get(f"/topics/{topic}/1/40/raw/")
    part = client.get(f"/topics/{topic}/1/40/raw/", headers={"Range": "bytes=299990-"})
    nothing = client.get(f"/topics/{topic}/1/9999/")
    assert "x" * 8_001 not in shown
    assert "x" * 300_000 in everything
    assert raw.content == b"x" * 300_000
    assert "attachment" in raw.headers["content-disposition"]
    assert (part.status_code, part.content) == (206, b"x" * 10)
    assert part.headers["content-range"] == "bytes 299990-299999/300000"
    assert nothing.status_code == 404
    assert "holds offsets 0 to 41" in nothing.text
    assert json.loads(web.run_python(AUDIT, f"{topic}/1/40")) == ["record.read", "record.download"]


def test_a_long_search_can_be_stopped_and_gone_on_with_and_holds_up_nobody(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName, sign_in: SignIn
) -> None:
    name = new_topic_name()
    gateway.create_topics([name], partitions=1)
    writer = gateway.writer(name)
    writer.send(0, b"[]")
    for number in range(1, 20_000):
        writer.send(number, SLOW_VALUE)
    writer.send(20_000, b"[]", b"found at once")
    assert writer.flush(60) == 0
    page = visit("vera").page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    page.goto(
        f"topics/{name}/messages/?seconds=60&filter={SLOW_FILTER.replace('+', '%2B')} %26%26 json == []"
    )
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    expect(page.locator("#rows")).to_contain_text("found at once", timeout=30_000)
    others = sign_in("olga")
    for path in ("/", "/topics/", f"/topics/{name}/", "/exports/", "/account/password/"):
        assert others.get(path).status_code == 200
    expect(stop).to_be_visible()
    stop.click()

    whole(page)
    # C140: progress is told a few times a second, however fast records are looked at.
    polls = sum(f"/topics/{name}/messages/" in url for url in asked)
    assert polls <= 4 + 3 * (clock.monotonic_ms() - began_ms) / 1000
    expect(page.locator("#scan-status")).to_contain_text("Stopped.")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#rows")).to_contain_text("found at once")
    page.get_by_role("link", name="Go on from here").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator("#rows tr")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    whole(page)


def test_what_matches_is_exported_and_comes_by_a_plain_click(
    visit: Visit, web: WebProcess, topic: str, tmp_path: Path, sign_in: SignIn
) -> None:
    page = visit("vera").page
    page.goto(f"topics/{topic}/messages/?filter=json.n < 10&start=oldest")
    whole(page)
    page.get_by_role("button", name="Export").click()
    row = page.locator("tbody tr", has_text=topic)
    expect(row).to_contain_text("queued")
    web.run_python(RUN_EXPORTS, topic)
    expect(row).to_contain_text("ok", timeout=10_000)
    screenshot(page, "exports")
    with page.expect_download() as waiting:
        row.get_by_role("link", name="Download").click()
    waiting.value.save_as(tmp_path / "export")
    lines = (tmp_path / "export").read_text().splitlines()
    assert [json.loads(json.loads(line)["value"])["n"] for line in lines] == list(range(10))
    url = row.get_by_role("link", name="Download").get_attribute("href") or ""
    part = sign_in("vera").get(url, headers={"Range": "bytes=0-9"})
    assert (part.status_code, len(part.content)) == (206, 10)
    assert sign_in("olga").get(url).status_code == 404
    row.get_by_role("button", name="Delete").click()
    expect(page.locator("tbody tr", has_text=topic)).to_contain_text("file gone")
    actions = json.loads(web.run_python(AUDIT, topic))
    assert actions == ["records.export", "export.download", "export.delete"]


def test_an_export_that_makes_no_sense_is_refused_with_the_reason(
    topic: str, sign_in: SignIn
) -> None:
    client = sign_in("vera")
    words = {
        ("?start=offset&at=x", "csv"): (400, "at: a whole number is needed here"),
        ("?since=2026-01-02&until=2026-01-01", "csv"): (400, "the range of times ends before"),
        ("?filter=json.n+%3D%3D", "csv"): (400, "The filter is not understood"),
        ("", "xml"): (400, "An export is one of ndjson, csv."),
    }

    for (query, format_), (status, said) in words.items():
        page = post(client, f"/topics/{topic}/messages/~export/{query}", {"format": format_})
        assert (page.status_code, said in page.text) == (status, True), query
    page = post(client, "/topics/no-such-topic/messages/~export/", {"format": "csv"})
    assert (page.status_code, "no topic no-such-topic" in page.text) == (404, True)


def test_records_and_exports_are_for_those_who_may(
    web: WebProcess, gateway: Gateway, topic: str, sign_in: SignIn
) -> None:
    name = f"reader-{topic}"
    web.sessions[name] = web.run_python(MAKE_READER, name, f"{topic} other-*", "other-*").strip()
    secret = f"secret-{topic}"
    gateway.create_topics([secret], partitions=1)
    client = sign_in(name)

    for path in ("messages/", "0/0/", "0/0/raw/", "messages/~check/?filter=true"):
        refused = client.get(f"/topics/{secret}/{path}")
        assert refused.status_code == 403, path
        assert "read records of this topic" in refused.text
    page = client.get(f"/topics/{topic}/messages/")
    assert page.status_code == 200
    assert "Export what matches" not in page.text
    assert post(client, f"/topics/{topic}/messages/~export/", {}).status_code == 403
    scan_id = page.text.partition('id="scan-id" name="scan" value="')[2].partition('"')[0]
    assert scan_id
    assert sign_in("ada").get(f"/topics/{topic}/messages/{scan_id}/").status_code == 404
    assert sign_in(None).get(f"/topics/{topic}/messages/").status_code == 302


def test_an_empty_topic_and_a_future_time_are_told_at_once(
    web: WebProcess, gateway: Gateway, new_topic_name: NewName, sign_in: SignIn
) -> None:
    name = new_topic_name()
    gateway.create_topics([name], partitions=3)
    client = sign_in("vera")
    words: dict[str, Any] = {
        "": "There are no records in this range",
        f"?start=time&at={SystemClock().wall_ms() + 10**9}": "There are no records in this range",
        "?start=offset&at=x": "a whole number is needed here",
        "?partition=9": f"{name} has no partition 9",
        "?cursor=bad": "the place in this address is not one",
        "?since=2026-01-02&until=2026-01-01T12:00": "the range of times ends before it begins",
        "?since=2026-01-01&until=2026-01-02": "There are no records in this range",
    }

    for query, said in words.items():
        text = client.get(f"/topics/{name}/messages/{query}").text
        if 'id="scan-stop"' in text:  # a child that starts takes longer than the page waits
            at = text.index('hx-get="', text.index('id="scan-status"')) + 8
            path = text[at : text.index('"', at)].replace("&amp;", "&")
            while 'id="scan-stop"' in (text := client.get(path).text):
                pass
        assert said in text, f"{query}: {text[text.find('scan-status') :][:800]}"


def test_a_search_is_saved_under_a_name_found_again_and_forgotten(visit: Visit, topic: str) -> None:
    page = visit("olga").page
    page.goto(f"topics/{topic}/messages/?filter=json.n+%3C+3&start=oldest&rows=20")
    whole(page)
    page.get_by_text("Saved filters").click()
    page.get_by_label("Save this search as").fill("the first three")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as the first three.")).to_be_visible()
    assert numbers(whole(page)) == [0, 1, 2]
    page.goto(f"topics/{topic}/messages/")
    page.get_by_role("link", name="the first three").click()
    assert numbers(whole(page)) == [0, 1, 2]
    # The address alone shows the same to others, who do not see the name.
    screenshot(page, "saved_filters")
    other = visit("vera").page
    other.goto(page.url)
    assert numbers(whole(other)) == [0, 1, 2]
    assert other.get_by_role("link", name="the first three").count() == 0
    page.get_by_role("button", name="Delete the filter the first three").click()
    expect(page.get_by_role("link", name="the first three")).to_have_count(0)
