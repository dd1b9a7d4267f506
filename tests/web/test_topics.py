"""Topics in the browser: list, creation, settings, what cannot be taken back. On our own broker."""

import csv
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from broker.model.ids import TopicPartition
from dashboard.cluster import ConfigView, KafkaFailure, OffsetView, Record, TopicView
from dashboard.gateway import Gateway, OffsetAt
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.processes import wait_until
from tests.support.web import WebProcess, post

NewName = Callable[[], str]
Visit = Callable[..., Visitor]


@pytest.fixture
def gateway(shared_odradek: OdradekBroker) -> Gateway:
    gateway = Gateway(shared_odradek.bootstrap)
    gateway.check()
    return gateway


def setting(gateway: Gateway, topic: str, key: str) -> str | None:
    views = gateway.topic_configs([topic], [key])[topic]
    assert isinstance(views, list), views
    (view,) = views
    assert isinstance(view, ConfigView)
    return view.value


def write(gateway: Gateway, topic: str, count: int) -> None:
    writer = gateway.writer(topic)
    for number in range(count):
        writer.send(number, b"value", b"key", partition=0)
    assert writer.flush(20) == 0
    assert not writer.failures


def read(gateway: Gateway, topic: str, partition: int, count: int) -> list[Record]:
    found: list[Record] = []
    with gateway.reader({TopicPartition(topic, partition): 0}) as reader:
        while len(found) < count:
            found += [item for item in reader.read(10) if isinstance(item, Record)]
    return found


def offsets(gateway: Gateway, topic: str, at: OffsetAt) -> list[int]:
    view = gateway.topics([topic])[topic]
    assert isinstance(view, TopicView)
    found = gateway.offsets(view.keys, at)
    return [o.offset for _, o in sorted(found.items()) if isinstance(o, OffsetView)]


def expect_soon(page: Page, holds: Callable[[], bool]) -> None:
    """Load the page again until the collector has seen what it needs to show."""
    for _ in range(60):
        if holds():
            return
        page.wait_for_timeout(500)
        page.reload()
    assert holds(), page.locator("main").inner_text()


def make_internal_topics(gateway: Gateway, group: str) -> None:
    """A group makes the topic of offsets."""
    gateway.create_topics([group])
    with gateway.group_reader(
        group,
        [group],
        from_end=False,
        read_committed=False,
        on_assigned=lambda *_: None,
        on_revoked=lambda *_: None,
    ) as reader:
        for _ in range(100):
            reader.read(0.1)
            if any(topic.is_internal for topic in gateway.cluster().topics):
                return
    raise AssertionError("no internal topic")


def audit_of(web: WebProcess, target: str) -> list[dict[str, Any]]:
    """What the audit log holds about a topic, oldest first; tests make topics outside too."""
    code = """
import json, sys
from dashboard.models import AuditEntry
rows = AuditEntry.objects.filter(target=sys.argv[1]).exclude(source="outside").order_by("id")
print(json.dumps(list(rows.values("actor_name", "action", "before", "after", "failure"))))
"""
    found: list[dict[str, Any]] = json.loads(web.run_python(code, target))
    return found


def test_a_topic_is_created_with_what_the_form_says(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    window = visit("olga")
    window.allowed.append("status of 422")
    page = window.page
    page.goto("topics/")
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("retention.ms", exact=True).fill("7 h")
    page.get_by_label("retention.bytes", exact=True).fill("lots")
    screenshot(page, "topic-create")
    page.get_by_role("button", name="Create topic").click()

    field = page.locator(".setting-field", has=page.get_by_label("retention.bytes", exact=True))
    expect(field.get_by_role("alert")).to_contain_text("retention.bytes")
    expect(page.get_by_role("alert")).to_have_count(1)
    page.get_by_label("retention.bytes", exact=True).fill("1 GiB")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("status", name="Preview")).to_contain_text("25200000 (7 h)")
    expect(page.get_by_role("status", name="Preview")).to_contain_text("1073741824 (1.00 GiB)")
    page.get_by_role("button", name="Create topic").click()

    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.get_by_text(f"Topic {name} was created.")).to_be_visible()
    expect(page.get_by_role("table").get_by_role("row")).to_have_count(4)
    assert setting(gateway, name, "retention.ms") == "25200000"
    (entry,) = [entry for entry in audit_of(web, name) if not entry["failure"]]
    assert (entry["actor_name"], entry["action"]) == ("olga", "topic.create")
    assert entry["after"]["settings"]["retention.bytes"] == "1073741824"


def rows(page: Page) -> list[str]:
    """Names of the topics that the list shows."""
    return [text.split()[0] for text in page.locator("tbody th").all_inner_texts()]


def test_the_list_is_searched_sorted_and_paged_with_its_state_in_the_address(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    base = new_topic_name()
    names = [f"{base}-{i:02d}" for i in range(53)]
    # One more, or the count is the same before the search, and there is no news to tell.
    assert not any(gateway.create_topics([*names, new_topic_name()], partitions=1).values())
    write(gateway, names[7], 30)
    write(gateway, names[31], 10)
    page = visit("vera").page
    page.goto(f"topics/?q={base}&sort=-records")
    expect_soon(page, lambda: rows(page)[:2] == [names[7], names[31]])
    page.goto("topics/")
    search = page.get_by_role("searchbox", name="Search")
    search.press_sequentially(base.upper())

    expect(page.locator("#topics-count")).to_have_text("1 to 50 of 53 topics")
    expect(page.locator("#news")).to_have_text("1 to 50 of 53 topics")
    expect(page).to_have_url(f"{web.url}/topics/?q={base.upper()}")
    expect(search).to_be_focused()
    page.get_by_role("link", name="Next").click()
    expect(page).to_have_url(re.compile(r"page=2$"))
    expect(page.locator("tbody tr")).to_have_count(3)
    assert rows(page) == names[50:]
    page.get_by_role("link", name="Max. records", exact=True).click()
    expect(page).to_have_url(f"{web.url}/topics/?q={base.upper()}&sort=-records")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Max. records")
    assert rows(page)[:3] == [names[7], names[31], names[0]]
    search.press("End")
    search.press_sequentially("-3")
    expect(page).to_have_url(f"{web.url}/topics/?q={base.upper()}-3&sort=-records")
    expect(page.locator("tbody tr")).to_have_count(10)
    assert rows(page)[0] == names[31]

    page.go_back()
    expect(page).to_have_url(f"{web.url}/topics/?q={base.upper()}&sort=-records")
    expect(page.locator("tbody tr")).to_have_count(50)
    assert rows(page)[:2] == [names[7], names[31]]
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    table = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert len(table) == 53
    assert [(row["Name"], row["Max. records"]) for row in table[:2]] == [
        (names[7], "30"),
        (names[31], "10"),
    ]
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


def test_internal_topics_are_hidden_until_they_are_asked_for(
    visit: Visit, gateway: Gateway, new_topic_name: NewName
) -> None:
    make_internal_topics(gateway, new_topic_name())
    page = visit("olga").page
    page.goto("topics/?q=__consumer")
    expect_soon(page, lambda: "1 internal hidden" in page.locator("#topics-count").inner_text())
    page.get_by_label("Internal topics").select_option("shown")
    expect(page.get_by_role("link", name="__consumer_offsets")).to_be_visible()

    page.goto("topics/?q=__consumer")
    expect(page.get_by_role("link", name="__consumer_offsets")).to_be_visible()
    page.get_by_label("Internal topics").select_option("hidden")
    expect(page.get_by_role("link", name="__consumer_offsets")).to_have_count(0)


def test_several_topics_are_emptied_and_deleted_after_the_words_were_typed(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    base = new_topic_name()
    names = [f"{base}-a", f"{base}-b"]
    assert not any(gateway.create_topics(names, partitions=2).values())
    write(gateway, names[0], 5)
    window = visit("olga")
    window.allowed.append("status of 422")
    page = window.page
    page.goto(f"topics/?q={base}")
    expect_soon(page, lambda: rows(page) == names)
    expect(page.get_by_role("button", name="Delete")).to_be_disabled()
    page.get_by_label("Choose all on this page").check()
    page.get_by_role("button", name="Empty").click()
    page.get_by_label("to confirm").fill("empty two topics")
    page.get_by_role("button", name="Empty").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    assert offsets(gateway, names[0], OffsetAt.EARLIEST)[0] == 0
    page.get_by_label("to confirm").fill("empty 2 topics")
    page.get_by_role("button", name="Empty").click()
    expect(page.get_by_text("2 topics were emptied.")).to_be_visible()
    assert offsets(gateway, names[0], OffsetAt.EARLIEST)[0] == 5

    page.goto(f"topics/?q={base}")
    page.get_by_label(f"Choose {names[1]}").check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("to confirm").fill(names[1])
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"Topic {names[1]} was deleted.")).to_be_visible()
    assert isinstance(gateway.topics(names)[names[1]], KafkaFailure)
    page.goto(f"topics/?q={base}")
    assert rows(page) == [names[0]]
    emptied, deleted = audit_of(web, names[1])
    assert [emptied["action"], deleted["action"]] == ["topic.empty", "topic.delete"]
    assert deleted["before"]["partitions"] == 2
    assert audit_of(web, names[0])[0]["after"] == {"log_start_offsets": {"0": 5, "1": 0}}


def test_an_open_page_says_that_its_topic_is_gone_and_does_not_make_it_again(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    """Our broker makes topics that a client asks for by name; looking is no such asking."""
    name = new_topic_name()
    gateway.create_topics([name], partitions=1)
    window = visit("vera")
    window.allowed.append("status of 404")
    page = window.page
    page.clock.install()
    page.goto(f"topics/{name}/")
    expect(page.locator("#topic-partitions")).to_be_visible()
    with web.client("olga") as client:
        post(client, "/topics/~delete/", {"topic": name, "confirm": name})
        wait_until(lambda: client.get(f"/topics/{name}/").status_code == 404, 30, "the end")
    page.clock.fast_forward(10_000)
    expect(page.get_by_role("alert")).to_contain_text(f"The cluster has no topic {name}")
    expect(page.locator("#topic-partitions")).to_have_count(0)
    assert name not in [topic.name for topic in gateway.cluster().topics]


def test_a_compacted_topic_refuses_to_be_emptied_and_says_what_to_do(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    gateway.create_topics([name], configs={"cleanup.policy": "compact"})
    window = visit("ada")
    window.allowed.append("status of 422")
    page = window.page
    page.goto(f"topics/{name}/danger/")
    page.get_by_role("link", name="Empty").click()
    page.get_by_label("to confirm").fill(name)
    page.get_by_role("button", name="Empty").click()

    expect(page.get_by_role("alert")).to_contain_text("cleanup policy does not allow this")
    expect(page.get_by_role("alert")).to_contain_text("add delete to its cleanup.policy")
    (entry,) = audit_of(web, name)
    assert entry["failure"].startswith("POLICY_VIOLATION")


def test_a_setting_is_found_checked_set_and_reset(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    gateway.create_topics([name])
    window = visit("olga")
    window.allowed.append("status of 422")
    page = window.page
    page.goto(f"topics/{name}/settings/")
    page.get_by_role("searchbox").press_sequentially("retention age which")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=retention(\+|%20)age"))
    page.get_by_role("link", name="Change retention.ms").click()
    page.get_by_label("Value").fill("-7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("retention.ms")
    page.get_by_label("Value").fill("2 h")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_text("The cluster would take 7200000 (2 h)")).to_be_visible()
    assert setting(gateway, name, "retention.ms") == "604800000"
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("retention.ms was set.")).to_be_visible()
    assert setting(gateway, name, "retention.ms") == "7200000"

    page.goto(f"topics/{name}/settings/?own=1")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Change retention.ms").click()
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_text("retention.ms was reset.")).to_be_visible()
    assert setting(gateway, name, "retention.ms") == "604800000"
    refused, done, back = audit_of(web, name)
    assert refused["failure"].startswith("INVALID_CONFIG")
    assert (done["before"], done["after"]) == (
        {"retention.ms": "604800000"},
        {"retention.ms": "7200000"},
    )
    assert back["after"] == {"retention.ms": "604800000"}


def test_partitions_are_added_and_settings_copied_to_a_new_topic(
    visit: Visit, gateway: Gateway, new_topic_name: NewName
) -> None:
    name, copy = new_topic_name(), new_topic_name()
    gateway.create_topics([name], partitions=2, configs={"segment.ms": "3600000"})
    window = visit("olga")
    window.allowed.append("status of 422")
    page = window.page
    page.goto(f"topics/{name}/danger/")
    page.get_by_role("link", name="Add partitions").click()
    expect(page.locator("main")).to_contain_text("Records with a key find another partition")
    page.get_by_label("New total").fill("1")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_role("alert")).to_contain_text("never taken away")
    page.get_by_label("New total").fill("4")
    page.get_by_role("button", name="Add partitions").click()
    expect(page.get_by_text(f"{name} has 4 partitions now.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(4)

    page.get_by_role("link", name="Danger zone").click()
    page.get_by_role("link", name="Copy to a new topic").click()
    expect(page.get_by_label("Partitions")).to_have_value("4")
    expect(page.get_by_label("segment.ms", exact=True)).to_have_value("3600000")
    page.get_by_label("Name", exact=True).fill(copy)
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name=copy)).to_be_visible()
    assert setting(gateway, copy, "segment.ms") == "3600000"


def test_records_are_produced_one_and_several_and_once_more(
    visit: Visit, web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    gateway.create_topics([name], partitions=2)
    page = visit("olga").page
    page.goto(f"topics/{name}/produce/")
    page.get_by_label("Key", exact=True).fill("<b>k</b>")
    page.get_by_label("Value", exact=True).first.fill("first\nsecond")
    page.get_by_label("Name", exact=True).fill("trace")
    page.locator("[name=header_value]").fill("1")
    page.get_by_role("button", name="Add header").click()
    page.locator("[name=header_name]").nth(1).fill("trace")
    page.locator("[name=header_format]").nth(1).select_option("null")
    page.get_by_label("Partition").select_option("1")
    page.get_by_label("Compression").select_option("zstd")
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("1 record written.")).to_be_visible()
    page.get_by_label("several records").check()
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("2 records written.")).to_be_visible()
    page.get_by_label("tombstone").check()
    page.get_by_role("button", name="Produce").click()
    expect(page.locator("#produced")).to_contain_text("offset 3")

    page.goto(f"topics/{name}/produce/?from=1:0")
    expect(page.get_by_label("Key", exact=True)).to_have_value("<b>k</b>")
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("1 record written.")).to_be_visible()
    records = read(gateway, name, 1, 5)
    headers = [("trace", b"1"), ("trace", None)]
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"<b>k</b>", value, headers)
        for value in (b"first\nsecond", b"first", b"second", None, b"first\nsecond")
    ]
    page.goto(f"topics/{name}/")
    figures = page.locator("tbody tr").nth(1)
    expect_soon(page, lambda: figures.locator("td").nth(3).inner_text() == "5")
    expect_soon(page, lambda: figures.locator("summary").all_inner_texts() == ["1"])
    page.goto(f"topics/{name}/produce/?from=0:77")
    expect(page.get_by_role("alert")).to_contain_text("cannot be read")
    entries = audit_of(web, name)
    assert [entry["after"]["records"] for entry in entries] == [1, 2, 1, 1]
    assert "first" not in json.dumps(entries)


def test_who_may_only_look_is_refused_every_change(
    web: WebProcess, gateway: Gateway, new_topic_name: NewName
) -> None:
    name = new_topic_name()
    gateway.create_topics([name])
    with web.client("vera") as client:
        for path in ("", "settings/", "groups/", "connect/"):
            assert client.get(f"/topics/{name}/{path}").status_code == 200, path
        for path in (
            "~create/",
            "~delete/",
            "~empty/",
            f"{name}/produce/",
            f"{name}/partitions/",
            f"{name}/settings/retention.ms/",
        ):
            answer = post(
                client, f"/topics/{path}", {"topic": name, "confirm": name, "action": "save"}
            )
            assert answer.status_code == 403, path
        assert client.get(f"/topics/{name}/danger/").status_code == 403
        assert not isinstance(gateway.topics([name])[name], KafkaFailure)
        assert client.get(f"/topics/{name}x/").status_code == 404
    with web.client(None) as stranger:
        assert stranger.get("/topics/").status_code == 302
