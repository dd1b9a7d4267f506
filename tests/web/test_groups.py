"""Consumer groups in the browser: list, one group, reset, deletion. Real consumers read meanwhile."""

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, expect

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from tests.support import processes
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.web import WebProcess, post

NewName = Callable[[], str]
Visit = Callable[..., Visitor]
HOSTILE = "=cmd <img src=x onerror=alert(1)> & more/ü?#"
TICK_MS = 40_000
"""Somebody looks, so a tick comes every 10 s; and a full second's patience for a busy machine."""


@pytest.fixture
def gateway(shared_odradek: OdradekBroker) -> Gateway:
    gateway = Gateway(shared_odradek.bootstrap)
    gateway.check()
    return gateway


@pytest.fixture
def topic(gateway: Gateway, shared_odradek: OdradekBroker, new_topic_name: NewName) -> str:
    """Two partitions with 20 and 5 records."""
    name = new_topic_name()
    gateway.create_topics([name], partitions=2)
    put(shared_odradek, name, 20, 0)
    put(shared_odradek, name, 5, 1)
    return name


def put(broker: OdradekBroker, topic: str, count: int, partition: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


class Reader:
    """A member of a group that commits each record that it was told to read."""

    def __init__(self, broker: OdradekBroker, group: str, topic: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "client.id": "night-shift",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe([topic])

    def read(self, count: int) -> list[tuple[int, int]]:
        found: list[Any] = []

        def has_all() -> bool:
            found.extend(m for m in self.consumer.consume(count - len(found), 0.1) if not m.error())
            return len(found) == count

        processes.wait_until(has_all, 60, f"{count} records")
        self.consumer.commit(asynchronous=False)
        return [(message.partition(), message.offset()) for message in found]


def open_group(page: Page, name: str) -> None:
    page.goto("groups/?q=")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Filter").click()
    link = page.get_by_role("link", name=name, exact=True)
    processes.wait_until(lambda: _is_there(page, link), TICK_MS / 1000, f"{name} in the list")
    link.click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def _is_there(page: Page, link: Any) -> bool:
    if link.count():
        return True
    page.wait_for_timeout(500)
    page.reload()
    return bool(link.count())


def cells(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=table).locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def committed(gateway: Gateway, group: str) -> dict[int, int]:
    found = gateway.groups.committed([group])[group]
    assert isinstance(found, dict)
    return {key.partition: at.offset for key, at in found.items()}


def test_a_group_from_the_list_to_its_reset(
    visit: Visit, web: WebProcess, shared_odradek: OdradekBroker, gateway: Gateway, topic: str
) -> None:
    """Its name is hostile; it falls behind while its page is open; it is moved when it has stopped."""
    group = f"{HOSTILE} {topic}"
    reader = Reader(shared_odradek, group, topic)
    reader.read(25)
    page = visit("olga").page
    open_group(page, group)
    page.get_by_role("link", name="2 s", exact=True).click()
    expect(page).to_have_url(re.compile("refresh=2"))
    live = page.locator("#live")
    expect(live).to_contain_text("everything is read")
    members = cells(page, "Members")
    assert [row[0].strip() for row in members] == ["night-shift"]
    assert f"{topic} 0-1" in " ".join(members[0][-1].split())

    put(shared_odradek, topic, 7, 0)
    expect(page.locator(".tile", has_text="Lag").locator(".tile-figure")).to_have_text("7")
    first = cells(page, "Partitions")[0]
    assert [first[place] for place in (0, 1, 2, 3, 4)] == [topic, "0", "20", "27", "7"]
    screenshot(page, "group")

    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("night-shift on 127.0.0.1")
    expect(page.get_by_role("button", name=re.compile("^Move the offsets"))).to_have_count(0)

    reader.consumer.close()
    page.get_by_label("Some partitions of a topic").check()
    page.get_by_label("Topic", exact=True).fill(topic)
    page.get_by_label("Partitions", exact=True).fill("0")
    page.get_by_label("Shift by so many records").check()
    page.get_by_label("Records (negative: back)").fill("-12")
    page.get_by_role("button", name="Preview").click()
    assert cells(page, "Preview by partition") == [[topic, "0", "20", "8", "12", "0", "19"]]
    expect(page.locator("#sum-replayed")).to_have_text("12")
    screenshot(page, "group-reset")
    page.get_by_role("button", name="Move the offsets of 1 partition").click()

    expect(page.get_by_role("status").first).to_contain_text(
        "The offsets of 1 partition are moved."
    )
    assert committed(gateway, group) == {0: 8, 1: 5}
    assert audited(web, group) == [
        ["olga", "group.reset", {f"{topic}-0": "20"}, {f"{topic}-0": "8"}, ""]
    ]
    again = Reader(shared_odradek, group, topic)
    assert again.read(19) == [(0, offset) for offset in range(8, 27)]
    again.consumer.close()


def test_deleting_asks_for_the_name(
    visit: Visit, web: WebProcess, gateway: Gateway, topic: str
) -> None:
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 1})
    page = visit("olga").page
    page.goto(f"groups/detail?id={topic}")
    page.get_by_label("Type the group's name").fill("something else")
    page.get_by_role("button", name="Delete group").click()
    expect(page.get_by_role("status").first).to_contain_text("Nothing was deleted")
    page.get_by_role("button", name="Forget offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("is forgotten")
    assert committed(gateway, topic) == {}

    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5})
    page.reload()
    page.get_by_label("Type the group's name").fill(topic)
    page.get_by_role("button", name="Delete group").click()

    expect(page.get_by_role("status").first).to_contain_text(f"Group {topic} is deleted.")
    assert topic not in [one.group for one in gateway.groups.listings()]
    actions = [entry[1] for entry in audited(web, topic)]
    assert actions == ["group.delete"]


def test_the_list_as_csv(web: WebProcess, gateway: Gateway, topic: str) -> None:
    group = f"=sum {topic}"
    gateway.groups.alter_offsets(group, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 4})
    with web.client("vera") as client:

        def rows(**query: str) -> list[dict[str, str]]:
            answer = client.get("groups/groups.csv", params={"q": topic, **query})
            assert answer.headers["content-type"].startswith("text/csv")
            return list(csv.DictReader(io.StringIO(answer.text)))

        processes.wait_until(lambda: bool(rows()), TICK_MS / 1000, "the group")
        (row,) = rows()
        assert (row["group"], row["lag"], row["state"]) == (f"'{group}", "16", "Empty")
        parts = rows(partitions="1")
        assert [(one["partition"], one["lag"]) for one in parts] == [("0", "15"), ("1", "1")]
        assert rows(state="Stable") == []


def test_a_viewer_sees_and_changes_nothing(web: WebProcess, gateway: Gateway, topic: str) -> None:
    gateway.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5})
    with web.client("vera") as client:
        page = client.get("groups/detail", params={"id": topic})
        assert page.status_code == 200
        assert "Delete group" not in page.text
        assert "Reset offsets" not in page.text
        assert client.get("groups/reset", params={"id": topic}).status_code == 403
        for path in ("reset", "delete", "delete-offsets"):
            answer = post(client, f"groups/{path}?id={topic}", {"confirm": topic, "topic": topic})
            assert answer.status_code == 403, path
    with web.client("olga") as client:
        assert client.get("groups/delete", params={"id": topic}).status_code == 405
        assert client.post(f"groups/delete?id={topic}").status_code == 403
    assert committed(gateway, topic) == {0: 5}


def test_a_group_that_is_not_there(web: WebProcess) -> None:
    with web.client() as client:
        answer = client.get("groups/detail", params={"id": "<b>nobody</b>"})
        assert answer.status_code == 404
        assert "&lt;b&gt;nobody&lt;/b&gt;" in answer.text
        assert client.get("groups/detail").status_code == 404


def audited(web: WebProcess, target: str) -> list[list[Any]]:
    code = """
import json, sys
from dashboard.models import AuditEntry
rows = AuditEntry.objects.filter(target=sys.argv[1], source="page").order_by("id")
print(json.dumps(list(rows.values_list("actor_name", "action", "before", "after", "failure"))))
"""
    found: list[list[Any]] = json.loads(web.run_python(code, target))
    return found
