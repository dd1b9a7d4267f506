"""The chosen zone, page by page: no moment that is shown is in another one.

Two people look at the same: one has chosen UTC, the other a named zone that is three quarters of an
hour off, so that no time of the one can pass for a time of the other.
"""

import datetime as dt
import html
import re
import zoneinfo
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from tests.support.browser import Visitor
from tests.support.odradek import OdradekBroker
from tests.support.web import WebProcess, post
from tests.web.test_tail import open_tail

ZONES = {"uta": "UTC", "kamala": "Asia/Kathmandu"}
AT = dt.datetime(2026, 1, 15, 11, 30, 0, 250_000, tzinfo=dt.UTC)
TOPIC = "stamped-at-half-past"
TIME = re.compile(r'<time datetime="([^"]+)"[^>]*>([^<]*)</time>')
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
TICK = re.compile(r'<a class="tick[^>]*href="([^"]+)"[^>]*title="([^"]*)".*?</a>', re.DOTALL)
MAKE_REPORT = """
import datetime as dt, json, sys
from dashboard.models import JobRun, Report
from dashboard.spark import results
at = dt.datetime.fromisoformat(sys.argv[1])
now = dt.datetime.now(dt.UTC)  # a run of long ago is tidied away
report = Report.objects.create(name="stamped", kind="events-over-time", topics=sys.argv[2])
made = dict(job="report", target="stamped", trigger="schedule", queued_at=now, started_at=now)
run = JobRun.objects.create(
    state="ok", finished_at=now, parameters={"ranges": []},
    result={"row_count": 3, "csv_bytes": 9, "parquet_bytes": 9, "is_cut": False}, **made)
results.complete(results.begin("stamped", run.pk))
rows = [[(at + dt.timedelta(minutes=minutes)).isoformat(timespec="milliseconds"), "all", 1 + minutes]
        for minutes in (0, 20, 40)]
(results.directory_of("stamped", run.pk) / "rows.json").write_text(json.dumps({
    "columns": [{"name": "window_start", "type": "timestamp"}, {"name": "group", "type": "string"},
                {"name": "events", "type": "bigint"}], "rows": rows}))
"""
DRAWN = """
window.drawn = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(String(text));
  return draw.call(this, text, ...rest);
};
"""
"""What a canvas shows is kept: the words on a chart's axes."""


@pytest.fixture(scope="module")
def people(web: WebProcess, shared_odradek: OdradekBroker) -> dict[str, str]:
    """Zone by name of whoever chose it; there are a topic and a report with known times."""
    for name, zone in ZONES.items():
        web.add_user(name, role="admin", time_zone=zone)
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    # Its records are old from the first moment on: the broker would let them go within a minute.
    topic = NewTopic(TOPIC, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(20)
    produce(shared_odradek)
    web.run_python(MAKE_REPORT, AT.isoformat(), TOPIC)
    return ZONES


def produce(broker: OdradekBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(TOPIC, b"x", timestamp=int(AT.timestamp() * 1000))
    assert producer.flush(20) == 0


def local(at: dt.datetime, zone: str, timespec: str = "seconds") -> str:
    there = at.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
    return there.isoformat(" ", timespec)


def test_every_moment_of_every_page_is_in_the_chosen_zone(
    web: WebProcess, pages: dict[str, str], people: dict[str, str]
) -> None:
    wrong: list[str] = []
    shown: set[str] = set()
    addresses = {
        **pages,
        "report with times": "reports/stamped/",
        "record with a time": f"topics/{TOPIC}/0/0/",
        "alerts part": "alerts/open/",
    }
    ticks: dict[str, dict[str, str]] = {}
    for person, zone in people.items():
        with web.client(person, follow_redirects=True) as client:
            for name, path in addresses.items():
                answer = client.get(path)
                assert answer.status_code == 200, f"{name}: {answer.status_code}"
                assert f'data-zone="{zone}"' in answer.text or "<body" not in answer.text, name
                for written, text in TIME.findall(answer.text):
                    shown.add(name)
                    at = dt.datetime.fromisoformat(html.unescape(written))
                    if text not in (local(at, zone), local(at, zone, "milliseconds")):
                        wrong.append(f"{name} in {zone}: {text} for {written}")
                ticks.setdefault(person, {}).update(TICK.findall(answer.text))
                wrong += [f"{name} in {zone}: {one}" for one in without_zone(answer.text)]
    assert not wrong, "\n".join(sorted(set(wrong)))
    assert shown >= {"report with times", "record with a time", "job_run", "report", "audit_entry"}
    of_both = ticks["uta"].keys() & ticks["kamala"].keys()
    assert of_both, "no run was told by a tick"
    assert {href: ticks["kamala"][href] for href in of_both} == {
        href: shifted(ticks["uta"][href]) for href in of_both
    }


def shifted(text: str) -> str:
    """What a tick says in UTC, as it has to be said in Kathmandu."""
    found = re.search(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", text)
    assert found is not None, text
    at = dt.datetime.fromisoformat(found[0]).replace(tzinfo=dt.UTC)
    return text.replace(found[0], local(at, ZONES["kamala"]))


def without_zone(page: str) -> list[str]:
    """Moments of a page that are neither in a `<time>` nor say an offset themselves."""
    rest = TICK.sub("", TIME.sub("", page))
    return [
        rest[max(0, found.start() - 40) : found.end() + 40]
        for found in MOMENT.finditer(rest)
        if not re.match(r"(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", rest[found.end() :])
    ]


@pytest.mark.slow
def test_what_scripts_show_is_in_the_chosen_zone(
    visit: Callable[..., Visitor], people: dict[str, str], shared_odradek: OdradekBroker
) -> None:
    """Records of a search, rows of the live tail, a chart's axis, reading and table."""
    for person, zone in people.items():
        page = visit(person).page
        page.add_init_script(DRAWN)
        page.goto(f"topics/{TOPIC}/messages/")
        expect(page.locator("td.time").first).to_have_text(local(AT, zone, "milliseconds"))

        page.goto("reports/stamped/")
        moments = [AT + dt.timedelta(minutes=minutes) for minutes in (0, 20, 40)]
        table = page.locator("table.report-result")
        for at in moments:
            expect(table.get_by_text(local(at, zone, "milliseconds"))).to_be_visible()
        chart = page.locator(".chart")
        expect(chart.locator("canvas")).to_have_count(1)  # a key before that reads nothing
        chart.locator(".chart-canvas").focus()
        page.keyboard.press("End")
        expect(chart.locator(".chart-reading")).to_contain_text(local(moments[-1], zone))
        chart.locator("summary").click()
        newest = chart.get_by_role("rowheader").first
        expect(newest).to_have_text(local(moments[-1], zone)[:-3])
        hours = {at.astimezone(zoneinfo.ZoneInfo(zone)).strftime("%H:") for at in moments}
        axis = [text for text in page.evaluate("drawn") if re.fullmatch(r"\d\d:\d\d(\n.*)?", text)]
        assert axis, "no time was drawn"
        assert {text[:3] for text in axis} <= hours

        open_tail(page, f"topic={TOPIC}")
        produce(shared_odradek)
        time = page.locator("#tail-rows td.time").first
        expect(time).to_have_text(local(AT, zone, "milliseconds"))


def test_a_zone_that_is_chosen_on_a_page_is_that_of_the_next(
    web: WebProcess, people: dict[str, str]
) -> None:
    web.add_user("wanda", role="viewer", time_zone="UTC")
    path = f"topics/{TOPIC}/0/0/"
    with web.client("wanda") as client:
        assert local(AT, "UTC", "milliseconds") in client.get(path).text
        post(client, "account/preferences/", {"time_zone": "Asia/Kathmandu"})
        assert local(AT, "Asia/Kathmandu", "milliseconds") in client.get(path).text
        client.cookies.set("odradek_zone", "America/New_York")
        post(client, "account/preferences/", {"time_zone": "browser"})
        assert local(AT, "America/New_York", "milliseconds") in client.get(path).text
