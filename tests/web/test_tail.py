"""The live tail in a real browser: a real producer writes, the page shows."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, expect

from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.web import WebProcess

HOSTILE = (
    "<img src=x onerror=\"document.body.dataset.hacked='yes'\"><script>alert(1)</script>\u202e"
)
SHOWN = HOSTILE.replace("\u202e", "\\u202e")
"""What would turn the text around it stands there as what it is."""


@pytest.fixture
def topic(shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]) -> str:
    return made(shared_odradek, new_topic_name())


def made(broker: OdradekBroker, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(20)
    return name


def produce(broker: OdradekBroker, topic: str, *values: str, **fields: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, **fields)
    assert producer.flush(20) == 0


def open_tail(page: Page, query: str) -> None:
    page.goto(f"tail/?{query}")
    expect(page.get_by_role("status").filter(has_text="Live.")).to_be_visible(timeout=20_000)


def values(page: Page) -> list[str]:
    return page.locator("#tail-rows td.value").all_text_contents()


def rows(page: Page) -> Any:
    return page.locator("#tail-rows tr")


def test_records_appear_the_newest_on_top_and_stay_text(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    page = visit("vera").page
    open_tail(page, f"topic={topic}")
    for number in range(3):
        produce(shared_odradek, topic, f"v{number}")
    produce(shared_odradek, topic, HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    expect(rows(page)).to_have_count(4)
    assert values(page) == [SHOWN, "v2", "v1", "v0"]
    expect(page.locator("[data-count=received]")).to_have_text("4")
    expect(page.locator("[data-count=shown]")).to_have_text("4")
    page.get_by_role("button", name="Offset 3, details").click()
    detail = page.locator("#tail-rows tr.detail")
    expect(detail.locator("pre").first).to_have_text(SHOWN)
    expect(detail.get_by_role("rowheader", name=SHOWN)).to_be_visible()
    detail.get_by_role("button", name="Hex").first.click()
    expect(detail.locator("pre").first).to_contain_text("3c 69 6d 67 20 73 72 63")
    assert page.locator("body").get_attribute("data-hacked") is None
    assert page.locator("main img, main script").count() == 0
    produce(shared_odradek, topic, "y" * 5_000)
    page.get_by_role("button", name="Offset 4, details").click()
    page.get_by_role("link", name="Show all of this record").click()
    expect(page).to_have_url(re.compile(f"/topics/{topic}/0/4/"))
    expect(page.locator("main")).to_contain_text("yyyy")


def test_frames_as_large_as_they_get_arrive(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    """A hundred rows of long values: each character here takes six bytes of a frame."""
    page = visit("vera").page
    open_tail(page, f"topic={topic}&rows=500")
    produce(shared_odradek, topic, *("\x01" * 3_000 for _ in range(250)))
    expect(page.locator("[data-count=received]")).to_have_text("250", timeout=20_000)
    expect(page.locator("[data-count=shown]")).to_have_text("250", timeout=20_000)
    expect(rows(page)).to_have_count(250)
    assert values(page)[0] == "\u2401" * 300 + "…"


def test_a_pause_keeps_what_was_shown_and_its_end_brings_the_rest(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    page = visit("vera").page
    open_tail(page, f"topic={topic}")
    produce(shared_odradek, topic, "before")
    expect(rows(page)).to_have_count(1)
    page.locator("#tail-scroll").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    produce(shared_odradek, topic, "during 1", "during 2")
    expect(page.locator("[data-count=waiting]")).to_have_text("2")
    assert values(page) == ["before"]
    page.keyboard.press("Space")
    expect(rows(page)).to_have_count(3)
    assert values(page) == ["during 2", "during 1", "before"]
    page.get_by_role("button", name="Clear").click()
    expect(rows(page)).to_have_count(0)
    produce(shared_odradek, topic, "after")
    expect(rows(page)).to_have_count(1)


def test_topics_and_filter_are_chosen_on_the_page_and_kept_in_its_address(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    other = made(shared_odradek, f"{topic}-other")
    produce(shared_odradek, topic, '{"n": 9007199254740993}')
    page = visit("vera").page
    page.goto("tail/")
    page.get_by_label("Begin with").select_option("100")
    for name in (topic, other):
        page.get_by_placeholder("Add a topic").fill(name)
        page.locator(f"#tail-found button[data-topic='{name}']").click()
    expect(rows(page)).to_have_count(1)
    page.locator("#tail-scroll").focus()
    page.keyboard.press("/")
    page.keyboard.type("json.n >")
    expect(page.locator("#tail-check.bad")).to_be_visible()
    page.keyboard.type(" 9007199254740992")
    expect(page.locator("#tail-check")).to_contain_text("Matches 1 of the latest 1 records")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("filter=json.n"))
    expect(page.locator("#tail-status")).to_have_text("Live.")
    expect(page.locator("[data-count=received]")).to_have_text("0")
    produce(shared_odradek, other, '{"n": 1}', '{"n": 9007199254740995}')
    expect(rows(page)).to_have_count(2)
    assert values(page)[0] == '{"n": 9007199254740995}'
    expect(page.locator("#tail-why")).to_have_text("1 did not match")
    screenshot(page, "tail")
    page.reload()
    expect(page.get_by_label("Filter")).to_have_value("json.n > 9007199254740992")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name=f"Remove {other}").click()
    expect(page).not_to_have_url(re.compile(other))


def test_rows_are_bounded_and_do_not_move_under_the_eyes_of_who_reads_further_down(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    page = visit("vera").page
    open_tail(page, f"topic={topic}&rows=100")
    produce(shared_odradek, topic, *(f"v{number}" for number in range(90)))
    expect(rows(page)).to_have_count(90)
    read = page.locator("#tail-rows tr", has_text="v60").first
    read.evaluate("row => row.scrollIntoView()")
    before = read.bounding_box()
    produce(shared_odradek, topic, *(f"w{number}" for number in range(5)))
    expect(page.get_by_role("button", name="5 newer")).to_be_visible()
    after = read.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) <= 1
    page.get_by_role("button", name="5 newer").click()
    produce(shared_odradek, topic, *(f"x{number}" for number in range(50)))
    expect(page.locator("[data-count=shown]")).to_have_text("145")
    expect(rows(page)).to_have_count(100)
    assert values(page)[0] == "x49"


@pytest.mark.slow
def test_a_tab_in_the_background_holds_so_many_rows_and_shows_the_newest_when_it_is_back(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    """C139"""
    page = visit("vera").page
    open_tail(page, f"topic={topic}&rows=100")
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => window.isAway }); window.isAway = true"
    )
    produce(shared_odradek, topic, *(f"v{number}" for number in range(250)))
    expect(page.locator("[data-count=shown]")).to_have_text("250", timeout=20_000)
    expect(rows(page)).to_have_count(0)

    page.evaluate("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(rows(page)).to_have_count(100)
    assert values(page) == [f"v{number}" for number in range(249, 149, -1)]


def offsets_by_partition(page: Page) -> dict[str, list[int]]:
    """As they stand there, from the top."""
    found: dict[str, list[int]] = {}
    for partition, offset in page.locator("#tail-rows tr").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td.number')].slice(0, 2).map(c => c.innerText))"
    ):
        found.setdefault(partition, []).append(int(offset.replace("\u202f", "")))
    return found


def test_bursts_come_whole_in_order_and_once(
    visit: Callable[..., Visitor],
    shared_odradek: OdradekBroker,
    new_topic_name: Callable[[], str],
) -> None:
    """C137: four records in one batch, three in the next, then a thousand over three partitions."""
    topic = made(shared_odradek, new_topic_name(), 3)
    page = visit("vera").page
    open_tail(page, f"topic={topic}&rows=5000")
    for values_of_one in (("a", "b", "c", "d"), ("e", "f", "g")):
        before = rows(page).count()
        burst(shared_odradek, topic, [(0, value) for value in values_of_one])
        expect(rows(page)).to_have_count(before + len(values_of_one))
    assert values(page) == list("gfedcba")

    burst(shared_odradek, topic, [(number % 3, str(number)) for number in range(1_000)])
    expect(page.locator("[data-count=received]")).to_have_text("1\u202f007", timeout=20_000)
    expect(page.locator("[data-count=shown]")).to_have_text("1\u202f007", timeout=20_000)
    found = offsets_by_partition(page)
    assert found == {
        "0": list(range(340, -1, -1)),
        "1": list(range(332, -1, -1)),
        "2": list(range(332, -1, -1)),
    }


def burst(broker: OdradekBroker, topic: str, records: list[tuple[int, str]]) -> None:
    """In one batch a partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500})
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def test_what_was_shown_outlives_a_pause_a_filter_and_a_new_choice_of_topics(
    visit: Callable[..., Visitor],
    shared_odradek: OdradekBroker,
    topic: str,
) -> None:
    """C141: nothing vanishes, the newest is on top, and what is chosen anew begins with now."""
    other = made(shared_odradek, f"{topic}-other", 2)
    produce(shared_odradek, other, "long ago", partition=1)
    page = visit("vera").page
    open_tail(page, f"topic={topic}")
    produce(shared_odradek, topic, *(f"v{number}" for number in range(20)))
    expect(rows(page)).to_have_count(20)
    page.get_by_role("button", name="Pause").click()
    assert values(page) == [f"v{number}" for number in range(19, -1, -1)]
    page.get_by_role("button", name="Resume").click()

    page.get_by_label("Filter").fill('value.startsWith("w")')
    page.get_by_role("button", name="Apply filter").click()
    expect(page.locator("[data-count=received]")).to_have_text("0")
    expect(page.locator("#tail-status")).to_have_text("Live.")
    produce(shared_odradek, topic, "v20", "w0")
    expect(rows(page)).to_have_count(21)
    assert values(page)[:2] == ["w0", "v19"]

    page.get_by_placeholder("Add a topic").fill(other)
    page.locator(f"#tail-found button[data-topic='{other}']").click()
    expect(page.locator("[data-count=received]")).to_have_text("0")
    expect(page.locator("#tail-status")).to_have_text("Live.")
    for number in range(3):
        produce(shared_odradek, other, f"w0-{number}", partition=0)
    expect(rows(page)).to_have_count(24)  # partitions have no order among each other
    produce(shared_odradek, other, "w1-0", partition=1)
    expect(rows(page)).to_have_count(25)
    assert values(page)[:5] == ["w1-0", "w0-2", "w0-1", "w0-0", "w0"]


def test_signing_out_in_another_tab_ends_the_tail(
    visit: Callable[..., Visitor], web: WebProcess, topic: str
) -> None:
    visitor = visit(None)
    web.run_python(
        "from dashboard.models import User;"
        "User.objects.filter(username='tom').delete();"
        "User.objects.create_user('tom', password='correct-horse-9', role='viewer')"
    )
    page = visitor.page
    page.goto("login/")
    page.get_by_label("Name").fill("tom")
    page.get_by_label("Password").fill("correct-horse-9")
    page.get_by_role("button", name="Sign in").click()
    open_tail(page, f"topic={topic}")
    other = visitor.context.new_page()
    other.goto("")
    other.locator("details.menu", has_text="tom").locator("summary").click()
    other.get_by_role("button", name="Sign out").click()
    expect(page.locator("#tail-status")).to_contain_text("you are signed out", timeout=15_000)


@pytest.fixture
def own_web(tmp_path: Path) -> Iterator[tuple[OdradekBroker, WebProcess]]:
    with (
        OdradekBroker(tmp_path) as broker,
        WebProcess(tmp_path, broker.bootstrap, {"root_path": "/logs"}, data=broker.data) as web,
    ):
        yield broker, web


@pytest.mark.slow
def test_it_works_under_a_prefix_and_outlives_a_broker_and_a_web_process(
    chromium: Any, own_web: tuple[OdradekBroker, WebProcess]
) -> None:
    broker, web = own_web
    made(broker, "t")
    visitor = Visitor(chromium, web, "vera")
    visitor.allowed += ["WebSocket connection to"]
    page = visitor.page
    open_tail(page, "topic=t")
    produce(broker, "t", "one")
    expect(rows(page)).to_have_count(1)
    broker.stop()
    expect(page.locator("#tail-status")).to_contain_text("waiting for the cluster", timeout=20_000)
    broker.start()
    kcat(broker, "t", "two\n")
    expect(rows(page)).to_have_count(2, timeout=30_000)
    expect(page.locator("#tail-status")).to_have_text("Live.", timeout=20_000)
    web.close()
    expect(page.locator("#tail-status")).to_contain_text("Connection lost")
    kcat(broker, "t", "meanwhile\n")
    web.start()
    expect(rows(page)).to_have_count(3, timeout=40_000)
    assert values(page) == ["meanwhile", "two", "one"]
    visitor.close()


def kcat(broker: OdradekBroker, topic: str, text: str) -> None:
    subprocess.run(
        ["kcat", "-P", "-b", broker.bootstrap, "-t", topic],
        input=text.encode(),
        check=True,
        timeout=30,
    )


@pytest.mark.slow
def test_what_is_watched_is_saved_as_it_is_now(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, topic: str
) -> None:
    page = visit("olga").page
    open_tail(page, f"topic={topic}")
    page.locator("#tail [name=filter]").fill('value.startsWith("yes")')
    page.get_by_role("button", name="Apply filter").click()
    page.get_by_text("Saved filters").click()
    page.get_by_label("Save this search as").fill("only yes")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as only yes.")).to_be_visible()
    page.goto("tail/")
    page.get_by_role("link", name="only yes").click()
    expect(page.get_by_role("status").filter(has_text="Live.")).to_be_visible(timeout=20_000)
    produce(shared_odradek, topic, "no", "yes!")
    expect(rows(page)).to_have_count(1, timeout=30_000)
    assert values(page) == ["yes!"]
