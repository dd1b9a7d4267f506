"""The live tail's hub against a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.clock import SystemClock
from dashboard.tail_hub import TailHub
from tests.support.apache import ApacheKafka
from tests.support.fixtures import Broker
from tests.support.odradek import OdradekBroker
from tests.support.tail import Watcher, hub_of


def new_topic(broker: Broker, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(20)
    return name


def produce(broker: OdradekBroker, topic: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


@pytest.fixture
async def hub(shared_odradek: OdradekBroker) -> AsyncIterator[TailHub]:
    hub = hub_of(shared_odradek.bootstrap)
    yield hub
    assert hub.feed_count == 0
    assert hub.filter_pid is None


async def test_everything_that_arrives_is_shown_in_order_and_counted(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic)
    values = [f"v{number}" for number in range(950)]
    produce(shared_odradek, topic, values)
    await watcher.until(lambda: watcher.has_reached({topic: {"0": "950"}}))
    await watcher.stop()

    assert watcher.values == values
    assert max(len(frame["rows"]) for frame in watcher.frames) == 100
    counters = watcher.counters
    assert (counters["received"], counters["shown"], counters["skipped"]) == ("950", "950", "0")


async def test_what_comes_too_fast_is_skipped_and_every_frame_adds_up(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name(), 2)
    watcher = Watcher(hub)
    await watcher.start(topic)
    for partition in (0, 1):
        produce(shared_odradek, topic, [f"{number}" for number in range(6_000)], partition)
    await watcher.until(lambda: watcher.has_reached({topic: {"0": "6000", "1": "6000"}}))
    await watcher.stop()

    for frame in watcher.frames:
        if counters := frame.get("counters"):
            shown, skipped = int(counters["shown"]), int(counters["skipped"])
            assert int(counters["received"]) == shown + skipped
    assert int(watcher.counters["received"]) == watcher.passed() == 12_000
    assert int(watcher.counters["shown"]) == len(watcher.rows) < 12_000


async def test_one_reader_serves_all_viewers_of_a_topic_and_ends_with_the_last(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watchers = [Watcher(hub) for _ in range(3)]
    for watcher in watchers:
        await watcher.start(topic)
    assert hub.feed_count == 1
    produce(shared_odradek, topic, ["for all"])
    for watcher in watchers:
        await watcher.until(lambda: watcher.values == ["for all"])
    for watcher in watchers[:2]:
        await watcher.stop()
    assert hub.feed_count == 1
    await watchers[2].stop()
    assert hub.feed_count == 0


async def test_a_viewer_that_never_answers_is_sent_two_frames_and_no_more(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    reader, sleeper = Watcher(hub), Watcher(hub, answers=False)
    await reader.start(topic)
    sleeper.hub.connect(sleeper.connection)
    await hub.begin(sleeper.connection, [topic], "", 0)
    produce(shared_odradek, topic, [str(number) for number in range(900)])
    await reader.until(lambda: len(reader.rows) == 900)
    await reader.stop()
    await sleeper.stop()

    assert len(sleeper.frames) == 2


async def test_a_filter_counts_what_does_not_match_and_what_it_fails_on(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic, filter_text="json.n >= 5")
    produce(shared_odradek, topic, [*(f'{{"n": {number}}}' for number in range(10)), "no json"])
    await watcher.until(lambda: watcher.has_reached({topic: {"0": "11"}}))
    counters = watcher.counters
    await watcher.stop()

    assert watcher.values == [f'{{"n": {number}}}' for number in range(5, 10)]
    assert counters["received"] == "11"
    assert (counters["skipped"], counters["unmatched"], counters["failed"]) == ("6", "5", "1")


async def test_a_wrong_filter_shows_nothing_and_says_why(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic, filter_text="value ==")
    produce(shared_odradek, topic, ["a"])
    await watcher.until(lambda: watcher.frames[-1].get("filter_trouble", "") != "")
    await watcher.until(lambda: watcher.counters["skipped"] == "1")
    await watcher.stop()

    assert watcher.rows == []


async def test_a_filter_is_tried_on_the_latest_records(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic)
    produce(shared_odradek, topic, ["a", "b", "c"])
    await watcher.until(lambda: len(watcher.rows) == 3)
    hub.check(watcher.connection, 7, "value > 'a'")
    await watcher.until(lambda: "check" in watcher.frames[-1])
    assert watcher.frames[-1]["check"] == {"id": 7, "matched": 2, "failed": 0, "looked_at": 3}
    hub.check(watcher.connection, 8, "value >")
    await watcher.until(lambda: watcher.frames[-1].get("check", {}).get("id") == 8)
    assert "error" in watcher.frames[-1]["check"]
    await watcher.stop()


async def test_records_from_before_are_tried_once_however_many_began_with_them(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    produce(shared_odradek, topic, ["a", "b"])
    watchers = [Watcher(hub), Watcher(hub)]
    for watcher in watchers:
        await watcher.start(topic, last=10)
        await watcher.until(lambda watcher=watcher: len(watcher.rows) == 2)
    hub.check(watcher.connection, 1, "value > 'a'")
    await watcher.until(lambda: "check" in watcher.frames[-1])
    assert watcher.frames[-1]["check"] == {"id": 1, "matched": 1, "failed": 0, "looked_at": 2}
    for watcher in watchers:
        await watcher.stop()


async def test_a_record_stamped_ahead_stays_where_its_offset_is(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    producer = Producer({"bootstrap.servers": shared_odradek.bootstrap})
    now_ms = SystemClock().wall_ms()
    values = [f"v{number}" for number in range(10)]
    for number, value in enumerate(values):
        ahead_ms = 1_800_000 if number in (3, 6) else 0
        producer.produce(topic, value, timestamp=now_ms + number + ahead_ms)
    assert producer.flush(20) == 0
    watcher = Watcher(hub)
    await watcher.start(topic, last=100)
    await watcher.until(lambda: len(watcher.rows) == 10)
    await watcher.stop()

    assert watcher.values == values


async def test_two_topics_begin_with_the_last_records_of_both(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    first = new_topic(shared_odradek, new_topic_name(), 3)
    second = new_topic(shared_odradek, new_topic_name())
    produce(shared_odradek, first, [f"a{number}" for number in range(50)], 2)
    produce(shared_odradek, second, [f"b{number}" for number in range(50)])
    produce(shared_odradek, first, ["a-last"], 1)
    watcher = Watcher(hub)
    await watcher.start(first, second, last=20)
    await watcher.until(lambda: len(watcher.rows) == 20)
    produce(shared_odradek, first, ["new"], 0)
    await watcher.until(lambda: watcher.values[-1] == "new" and "offsets" in watcher.counters)
    await watcher.stop()

    assert watcher.values == [*(f"b{number}" for number in range(31, 50)), "a-last", "new"]
    assert int(watcher.counters["received"]) == watcher.passed() == 21


async def test_a_pause_shows_nothing_and_its_end_brings_what_the_ring_holds(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic)
    watcher.connection.viewer.is_paused = True
    produce(shared_odradek, topic, [str(number) for number in range(2_500)])
    await watcher.until(lambda: watcher.counters["waiting"] == 2_500)
    assert watcher.rows == []
    watcher.connection.viewer.is_paused = False
    await watcher.until(lambda: watcher.has_reached({topic: {"0": "2500"}}))
    await watcher.stop()

    assert watcher.values == [str(number) for number in range(1_500, 2_500)]
    assert watcher.counters["skipped"] == "1500"


@pytest.mark.slow
async def test_holes_of_transactions_are_no_received_records(shared_apache: ApacheKafka) -> None:
    topic = new_topic(shared_apache, "tail-of-transactions")
    hub = hub_of(shared_apache.bootstrap)
    watcher = Watcher(hub)
    await watcher.start(topic)
    producer = Producer(
        {"bootstrap.servers": shared_apache.bootstrap, "transactional.id": f"x-{topic}"}
    )
    await asyncio.to_thread(producer.init_transactions, 20)
    for value, ends_well in (("gone", False), ("kept", True), ("gone too", False)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(20)
        end = producer.commit_transaction if ends_well else producer.abort_transaction
        await asyncio.to_thread(end, 20)
    await watcher.until(lambda: watcher.has_reached({topic: {"0": "6"}}))
    await watcher.stop()

    assert watcher.values == ["kept"]
    assert (watcher.counters["received"], watcher.counters["holes"]) == ("1", "5")
    assert watcher.passed() == 6


async def test_partitions_that_are_added_are_read_from_their_beginning(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    watcher = Watcher(hub)
    await watcher.start(topic)
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
    produce(shared_odradek, topic, ["in the new one"], 1)
    produce(shared_odradek, topic, ["in the old one"], 0)
    await watcher.until(lambda: len(watcher.rows) == 2)
    await watcher.stop()

    assert sorted(watcher.values) == ["in the new one", "in the old one"]


async def test_a_deleted_topic_is_not_brought_back_and_a_new_one_is_read_from_its_beginning(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    produce(shared_odradek, topic, ["old"] * 5)
    watcher = Watcher(hub)
    await watcher.start(topic)
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    await watcher.until(lambda: watcher.states[topic] == "missing")
    assert topic not in admin.list_topics(timeout=20).topics
    new_topic(shared_odradek, topic)
    produce(shared_odradek, topic, ["new 1", "new 2"])
    await watcher.until(lambda: len(watcher.rows) == 2)
    assert watcher.states[topic] == "live"
    await watcher.stop()

    assert watcher.values == ["new 1", "new 2"]


async def test_a_topic_that_is_not_there_yet_is_read_from_its_beginning_once_it_is(
    hub: TailHub, shared_odradek: OdradekBroker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic_name()
    watcher = Watcher(hub)
    await watcher.start(topic)
    assert watcher.states == {topic: "missing"}
    new_topic(shared_odradek, topic)
    produce(shared_odradek, topic, ["first"])
    await watcher.until(lambda: watcher.values == ["first"])
    await watcher.stop()


async def test_a_broker_that_restarts_costs_no_record(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek()
    topic = new_topic(broker, "restarted")
    hub = hub_of(broker.bootstrap)
    watcher = Watcher(hub)
    await watcher.start(topic)
    produce(broker, topic, ["before"])
    await watcher.until(lambda: watcher.values == ["before"])
    await asyncio.to_thread(broker.stop)
    await watcher.until(lambda: watcher.states[topic] == "waiting")
    await asyncio.to_thread(broker.start)
    await asyncio.to_thread(produce, broker, topic, ["after"])
    await watcher.until(lambda: watcher.values == ["before", "after"], 60)
    await watcher.until(lambda: watcher.states[topic] == "live")
    await watcher.stop()

    assert watcher.counters["received"] == "2"


async def test_who_does_not_read_and_who_is_idle_is_closed(
    hub: TailHub,
    shared_odradek: OdradekBroker,
    new_topic_name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(shared_odradek, new_topic_name())
    sleeper, idler = Watcher(hub, answers=False), Watcher(hub)
    monkeypatch.setattr("dashboard.tail_hub.UNACKNOWLEDGED_LIMIT_MS", 500)
    hub.connect(sleeper.connection)
    await hub.begin(sleeper.connection, [topic], "", 0)
    await sleeper.until(lambda: sleeper.closed is not None)
    assert sleeper.closed == (4409, "nobody reads")
    await idler.start(topic)
    monkeypatch.setattr("dashboard.tail_hub.IDLE_LIMIT_MS", 500)
    await idler.until(lambda: idler.closed is not None)
    assert idler.closed == (4408, "idle")
