"""The page of transactions, and ending them, on our broker and on Apache Kafka: the same script."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import processes, requests
from tests.support.fixtures import Broker
from tests.support.transactions import (
    TransactionalProducer,
    committed_values,
    leave_hanging,
    wait_for_state,
)
from tests.support.web import WebProcess, post
from tests.support.wire import Wire


@pytest.fixture
def client(own_broker: Broker, tmp_path: Path) -> Iterator[httpx.Client]:
    with WebProcess(tmp_path / "web", own_broker.bootstrap) as web, web.client("olga") as client:
        yield client


def page_with(client: httpx.Client, text: str) -> str:
    pages: list[str] = []

    def has_text() -> bool:
        pages.append(client.get("/transactions/").text)
        return text in pages[-1]

    processes.wait_until(has_text, 60, text)
    return pages[-1]


def link_to(page: str, view: str) -> str:
    found = re.search(rf'href="(/transactions/{view}\?[^"]+)"', page)
    assert found, page
    return found[1].replace("&amp;", "&")


def test_transactions_are_shown_and_ended(client: httpx.Client, own_broker: Broker) -> None:
    with Wire(own_broker.address, timeout=60) as wire:
        topic = requests.create_topic(wire)
        producer = TransactionalProducer(wire).init()
        producer.add(topic, 0)
        assert producer.produce(topic, [b"v"]) == 0

        page = page_with(client, producer.transactional_id)

        assert "Ongoing" in page
        assert f"{topic}-0" in page
        there = link_to(page, "abort")
        asked = client.get(there)
        assert producer.transactional_id in asked.text
        assert "has to begin anew" in asked.text
        wrong = post(client, f"{there}7", {})  # another producer's id
        assert "Another producer has taken the id over" in wrong.text
        done = post(client, there, {})
        assert f"The transaction of {producer.transactional_id} is being aborted." in done.text
        wait_for_state(wire, producer.transactional_id, "CompleteAbort")
        gone = post(client, there, {})
        assert "No such transaction is under way" in gone.text
        page_with(client, "No transaction is under way.")
        assert "transaction.abort" in client.get("/audit/").text

        told = client.get("/api/v1/transactions").json()
        assert (told["transactions"], told["hanging"]) == ([], [])


def test_what_hangs_is_marked_and_ended(client: httpx.Client, own_broker: Broker) -> None:
    with Wire(own_broker.address, timeout=60) as wire:
        topic = requests.create_topic(wire)
        producer = leave_hanging(wire, own_broker.name, topic)
        requests.produce_values(wire, topic, [b"behind"])
        assert committed_values(wire, topic) == []

        page = page_with(client, "Readers wait at")

        told = client.get("/api/v1/transactions", params={"topic": topic}).json()
        (hanging,) = told["hanging"]
        assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == (topic, 0, 0)
        assert hanging["producer_id"] == producer.producer_id
        there = link_to(page, "abort-hanging")
        assert f"{topic}-0" in client.get(there).text
        done = post(client, there, {})
        assert f"What hung on {topic}-0 is aborted." in done.text
        assert committed_values(wire, topic) == [b"behind"]
        again = post(client, there, {})
        assert "No such transaction hangs there" in again.text
        assert "transaction.abort_hanging" in client.get("/audit/").text
