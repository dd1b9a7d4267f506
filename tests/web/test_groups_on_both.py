"""Pages of groups and every change, on our broker and on Apache Kafka: the same script."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from dashboard.gateway import Gateway
from tests.support import processes
from tests.support.apache import ApacheKafka
from tests.support.fixtures import Broker
from tests.support.web import WebProcess, post

NewName = Callable[[], str]


@pytest.fixture
def client(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[httpx.Client]:
    """Signed in at a dashboard of this broker."""
    if not isinstance(broker, ApacheKafka):
        with request.getfixturevalue("web").client("olga") as client:
            yield client
        return
    with WebProcess(tmp_path, broker.bootstrap) as web, web.client("olga") as client:
        yield client


def committed(gateway: Gateway, group: str) -> dict[int, int]:
    found = gateway.groups.committed([group])[group]
    assert isinstance(found, dict)
    return {key.partition: at.offset for key, at in found.items()}


def test_every_page_and_every_change(
    client: httpx.Client, broker: Broker, new_topic_name: NewName
) -> None:
    gateway = Gateway(broker.bootstrap)
    topic = new_topic_name()
    gateway.create_topics([topic], partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(9):
        producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    member = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "client.id": "night-shift",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": "consumer",
        }
    )
    member.subscribe([topic])
    found: list[object] = []

    def has_five() -> bool:
        found.extend(m for m in member.consume(5 - len(found), 0.1) if not m.error())
        return len(found) == 5

    processes.wait_until(has_five, 60, "five records")
    member.commit(asynchronous=False)

    # One group, as it is now: nothing has to be collected first.
    page = client.get("/groups/detail", params={"id": topic})
    processes.wait_until(
        lambda: "night-shift" in client.get("/groups/detail", params={"id": topic}).text,
        30,
        "the member",
    )
    page = client.get("/groups/detail", params={"id": topic})
    assert page.status_code == 200
    assert "consumer (KIP-848)" in page.text
    assert re.search(r'<td class="number">9</td>\s*<td class="number">4</td>', page.text)
    reset = {"id": topic, "scope": "all", "to": "offset", "offset": "2"}
    assert "night-shift on 127.0.0.1" in client.get("/groups/reset", params=reset).text
    refused = post(client, f"/groups/delete?id={topic}", {"confirm": topic})
    assert "1 member: night-shift on 127.0.0.1" in refused.text

    member.close()
    preview = client.get("/groups/reset", params=reset)
    plan = re.search(r'name="plan" value="([^"]+)"', preview.text)
    assert plan, preview.text
    assert 'id="sum-replayed">3<' in preview.text
    done = post(client, f"/groups/reset?id={topic}", {"plan": plan[1]})
    assert "The offsets of 1 partition are moved." in done.text
    assert committed(gateway, topic) == {0: 2}

    def is_listed() -> bool:
        answer = client.get("/groups/", params={"q": topic, "state": "Empty"})
        return f"detail?id={topic}" in answer.text

    processes.wait_until(is_listed, 60, "the group in the list", every=0.5)
    forgotten = post(client, f"/groups/delete-offsets?id={topic}", {"topic": topic})
    assert "is forgotten" in forgotten.text
    assert committed(gateway, topic) == {}
    gone = post(client, f"/groups/delete?id={topic}", {"confirm": topic})
    # Apache Kafka has done away with an empty group of its own accord once its offsets went.
    assert "is deleted." in gone.text or "no such group" in gone.text
    assert topic not in [one.group for one in gateway.groups.listings()]
