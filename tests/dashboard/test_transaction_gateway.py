"""Transactions through the gateway, on real brokers: what is under way, what hangs, and its end."""

from collections.abc import Iterator

import pytest

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.transactions import OpenTransaction, TransactionView, unknown_ones
from tests.support import requests
from tests.support.fixtures import Broker
from tests.support.transactions import (
    TransactionalProducer,
    committed_values,
    describe,
    leave_hanging,
    wait_for_state,
)
from tests.support.wire import Wire

PRODUCER_FENCED = 90


@pytest.fixture
def gateway(own_broker: Broker) -> Gateway:
    found = Gateway(own_broker.bootstrap)
    found.check()
    return found


@pytest.fixture
def wire(own_broker: Broker) -> Iterator[Wire]:
    with Wire(own_broker.address, timeout=60) as made:
        yield made


def leaders(gateway: Gateway, topic: str) -> dict[TopicPartition, BrokerView]:
    brokers = {each.broker_id: each for each in gateway.brokers()}
    found = gateway.topics([topic])[topic]
    assert isinstance(found, TopicView)
    return {
        TopicPartition(topic, each.index): brokers[each.leader]
        for each in found.partitions
        if each.leader is not None
    }


@pytest.mark.conformance
def test_a_transaction_is_seen_and_aborted(gateway: Gateway, wire: Wire) -> None:
    topic = requests.create_topic(wire, partitions=2)
    at_rest = TransactionalProducer(wire).init()
    assert gateway.transactions.under_way() == []
    producer = TransactionalProducer(wire).init(timeout_ms=50_000)
    producer.add(topic, 0, 1)
    assert producer.produce(topic, [b"v"]) == 0

    known, hanging = gateway.transactions.hanging(leaders(gateway, topic))

    assert hanging == []
    (view,) = known
    assert view.transactional_id == producer.transactional_id != at_rest.transactional_id
    assert (view.producer_id, view.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (view.state, view.timeout_ms, view.coordinator) == ("Ongoing", 50_000, 1)
    assert view.started_ms is not None
    assert view.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    (opened,) = gateway.transactions.open_on(leaders(gateway, topic))
    assert (opened.partition, opened.start_offset) == (TopicPartition(topic, 0), 0)
    assert opened.producer_id == producer.producer_id

    gateway.transactions.abort(view)

    wait_for_state(wire, producer.transactional_id, "CompleteAbort")
    assert producer.try_end(True) == PRODUCER_FENCED
    assert committed_values(wire, topic) == []
    assert gateway.transactions.under_way() == []


@pytest.mark.conformance
def test_what_hangs_is_found_and_ended(gateway: Gateway, wire: Wire, own_broker: Broker) -> None:
    topic = requests.create_topic(wire, partitions=2)
    producer = leave_hanging(wire, own_broker.name, topic)
    requests.produce_values(wire, topic, [b"behind"])
    assert describe(wire, producer.transactional_id).transaction_state != "Ongoing"
    assert committed_values(wire, topic) == []

    known, (found,) = gateway.transactions.hanging(leaders(gateway, topic))

    assert known == []
    assert found.partition == TopicPartition(topic, 0)
    assert (found.producer_id, found.start_offset) == (producer.producer_id, 0)
    gateway.transactions.abort_on(found, leaders(gateway, topic)[found.partition])
    assert committed_values(wire, topic) == [b"behind"]
    assert gateway.transactions.hanging(leaders(gateway, topic)) == ([], [])


@pytest.mark.conformance
def test_where_plain_sockets_cannot_be_used_it_says_so(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway._link, "serves", lambda request: False)
    assert not gateway.transactions.can_tell
    with pytest.raises(KafkaFailure) as refused:
        gateway.transactions.under_way()
    assert refused.value.code == "UNSUPPORTED_VERSION"


def test_a_partition_that_its_coordinator_knows_does_not_hang() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    view = TransactionView("x", 7, 0, "Ongoing", 60_000, 1, (here,), 1)
    opened = [OpenTransaction(each, 7, 0, -1, 5, 1) for each in (here, there)]
    opened.append(OpenTransaction(here, 8, 0, -1, 6, 1))
    assert unknown_ones(opened, [view]) == opened[1:]
