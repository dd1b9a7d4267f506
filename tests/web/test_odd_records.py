"""What has broken other dashboards: records of every odd kind, ranges of times, counts, topics that are
gone, groups with nothing (cases C118-C121, C124, C126, C127, C129-C131, C133), on a real broker, by the
API and the pages."""

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from tests.support.odradek import OdradekBroker
from tests.support.processes import wait_until
from tests.support.requests import delete_records
from tests.support.web import WebProcess
from tests.support.wire import Wire

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ODD: list[tuple[bytes | None, bytes | None]] = [
    (b"key", None),
    (None, b"value"),
    (None, None),
    (b"", b""),
    (b"\xff\xfe", b"\xff\x00\x80"),
    (b"\xed\xa0\x80", b"half a pair \xed\xa0\x80"),
    (b"\x00", b"\x00"),
    ("\ufeff".encode(), "\ufeffwith a mark".encode()),
    (b"gzip", gzip.compress(b"x", mtime=0)),
    (b"avro", b"Obj\x01\x04\x14avro.codec\x08null"),
    (b"deep", b"[" * 10_000 + b"]" * 10_000),
    (b"good", b'{"amount": 1}'),
]


@pytest.fixture
def gateway(web: WebProcess) -> Gateway:
    return Gateway(web.environment["ODRADEK_CLUSTER"])


@pytest.fixture
def ada(web: WebProcess) -> Iterator[httpx.Client]:
    with web.client("ada") as client:
        yield client


def make(
    gateway: Gateway, topic: str, records: list[tuple[int, bytes | None, bytes | None]]
) -> None:
    gateway.create_topics([topic], partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for stamp, key, value in records:
        producer.produce(topic, value, key, 0, timestamp=stamp)
    assert producer.flush(30) == 0


def read(client: httpx.Client, topic: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/api/v1/topics/{topic}/records", params={"start": "oldest", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def offsets(found: dict[str, Any]) -> list[int]:
    return [record["offset"] for record in found["records"]]


def test_odd_records_are_listed_all_and_break_nothing(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    topic, now = new_topic_name(), SystemClock().wall_ms()
    make(gateway, topic, [(now, key, value) for key, value in ODD])

    for view in ("auto", "text", "json", "hex"):
        found = read(ada, topic, view=view)
        assert offsets(found) == list(range(len(ODD)))
        assert offsets(read(ada, topic, start="newest", view=view)) == offsets(found)[::-1]
    shown = read(ada, topic)["records"]
    assert [one["value"]["shown_as"] for one in shown[:4]] == ["null", "text", "null", "text"]
    assert [one["key"]["shown_as"] for one in shown[:4]] == ["text", "null", "null", "text"]
    assert [one["value"]["size"] for one in shown] == [len(value or b"") for _, value in ODD]

    # Whoever searches passes over them, and is not told that they could not be searched.
    searched = read(ada, topic, in_value="amount")
    assert (offsets(searched), searched["scanned"]) == ([len(ODD) - 1], len(ODD))
    assert offsets(read(ada, topic, filter="json.amount == 1")) == [len(ODD) - 1]

    for offset, (key, value) in enumerate(ODD):
        for path in (f"/topics/{topic}/0/{offset}/", f"/api/v1/topics/{topic}/records/0/{offset}"):
            assert ada.get(path).status_code == 200, path
            assert ada.get(path, params={"whole": "true", "view": "json"}).status_code == 200
        for part, held in (("key", key), ("value", value)):
            raw = ada.get(f"/api/v1/topics/{topic}/records/0/{offset}/raw", params={"part": part})
            assert (raw.status_code, raw.content) == (200, held) or (
                held is None and raw.status_code == 404
            ), f"{part} of {offset}"
    for path in (f"/topics/{topic}/", f"/topics/{topic}/messages/", "/"):
        assert ada.get(path).status_code == 200


def test_records_of_the_future_are_missing_only_from_a_range_that_ends_before(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    topic, now = new_topic_name(), SystemClock().wall_ms()
    stamps = [now + HOUR_MS if number in (3, 6) else now - 1000 for number in range(10)]
    make(gateway, topic, [(stamp, b"k", b"v") for stamp in stamps])

    assert offsets(read(ada, topic)) == list(range(10))
    assert offsets(read(ada, topic, start="newest")) == list(range(9, -1, -1))
    for start in ("oldest", "newest"):
        until_now = read(ada, topic, start=start, until=str(now))
        assert sorted(offsets(until_now)) == [0, 1, 2, 4, 5, 7, 8, 9]
    assert sorted(offsets(read(ada, topic, since=str(now)))) == [3, 6]


def test_a_range_of_times_holds_the_same_records_both_ways_round(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    """C121: a record an hour in each of three partitions, over twenty days. No other record is read."""
    topic, first = new_topic_name(), SystemClock().wall_ms() - 20 * DAY_MS
    gateway.create_topics(
        [topic], partitions=3, replication_factor=1, configs={"retention.ms": "-1"}
    )
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for hour in range(20 * 24):
        for partition in range(3):
            producer.produce(topic, b"v", b"k", partition, timestamp=first + hour * HOUR_MS)
    assert producer.flush(30) == 0

    def found(start: str, **times: int) -> set[tuple[int, int]]:
        """All pages of it."""
        records: list[tuple[int, int]] = []
        scanned, cursor = 0, ""
        while True:
            page = read(ada, topic, start=start, cursor=cursor, limit=200, **times)
            records += [(one["partition"], one["offset"]) for one in page["records"]]
            scanned += page["scanned"]
            if (cursor := page["next"] or "") == "":
                break
        assert len(set(records)) == len(records) == scanned
        return set(records)

    since, until = first + 5 * DAY_MS, first + 13 * DAY_MS
    every = {(partition, offset) for partition in range(3) for offset in range(480)}
    for times, hours in (
        ({"since": since, "until": until}, range(5 * 24, 13 * 24)),
        ({"since": since}, range(5 * 24, 480)),
        ({"until": until}, range(13 * 24)),
        ({"since": first - 2 * DAY_MS, "until": first - DAY_MS}, range(0)),
    ):
        wanted = {one for one in every if one[1] in hours}
        for start in ("newest", "oldest"):
            assert found(start, **times) == wanted, (start, times)
    answer = ada.get(f"/api/v1/topics/{topic}/records", params={"since": until, "until": since})
    assert answer.status_code == 422
    assert "ends before it begins" in answer.text


def test_a_count_by_offsets_is_called_what_it_is(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    """C129: transactions of one record each, a tenth of them aborted: two offsets for each."""
    topic = new_topic_name()
    gateway.create_topics([topic], partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(50):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush(30)
        if number % 10 == 0:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    def told() -> Any:
        answer = ada.get(f"/api/v1/topics/{topic}")
        return answer.json().get("record_count") if answer.status_code == 200 else None

    wait_until(lambda: told() == 100, 60, "the topic's offsets in a snapshot")
    found = read(ada, topic, limit=200)
    assert (len(found["records"]), found["next"]) == (45, None)
    schema = ada.get("/api/v1/openapi.json").json()["components"]["schemas"]["TopicOut"]
    assert "holes" in json.dumps(schema["properties"]["record_count"])
    for path in (f"/topics/{topic}/", f"/topics/?q={topic}", f"/topics/~empty/?topic={topic}"):
        # The list shows what the snapshot has, which is not asked for the topic by its name.
        wait_until(lambda at=path: "Max. records" in ada.get(at).text, 60, f"the count on {path}")
    assert "at most 100" in ada.get(f"/topics/{topic}/danger/").text


def test_a_reset_goes_where_it_was_told_to(
    web: WebProcess,
    gateway: Gateway,
    shared_odradek: OdradekBroker,
    new_topic_name: Callable[[], str],
) -> None:
    """C126: three partitions that begin at 10 and end at 100; what comes of it is read from the broker."""
    topic, group, base = new_topic_name(), new_topic_name(), SystemClock().wall_ms() - DAY_MS
    gateway.create_topics([topic], partitions=3, replication_factor=1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for offset in range(100):
        for partition in range(3):
            producer.produce(topic, b"v", b"k", partition, timestamp=base + offset * 1000)
    assert producer.flush(30) == 0
    with Wire(shared_odradek.address) as wire:
        for partition in range(3):
            delete_records(wire, topic, 10, partition=partition)
    keys = [TopicPartition(topic, partition) for partition in range(3)]
    gateway.groups.alter_offsets(group, dict.fromkeys(keys, 77))

    def preview(**wanted: Any) -> httpx.Response:
        return post_json(web, f"/api/v1/groups/reset/preview?id={group}", wanted)

    def committed() -> list[int]:
        found = gateway.groups.committed([group])[group]
        assert isinstance(found, dict)
        return [found[key].offset for key in keys]

    for wanted, offsets_after in (
        ({"to": "start"}, [10] * 3),
        ({"to": "end"}, [100] * 3),
        ({"to": "50"}, [50] * 3),
        ({"to": "5"}, [10] * 3),
        ({"to": "500"}, [100] * 3),
        ({"to": f"@{base + 40_000}"}, [40] * 3),
        ({"to": f"@{base + 39_500}"}, [40] * 3),
        ({"to": f"@{base - 1}"}, [10] * 3),
        ({"to": f"@{base + 100_000}"}, [100] * 3),
        ({"to": "60", "topic": topic, "partitions": [1]}, [100, 60, 100]),
        ({"shift_by": -50}, [50, 10, 50]),
    ):
        before = committed()
        plan = preview(**wanted).json()
        moves = {move["partition"]: (move["prior"], move["new"]) for move in plan["moves"]}
        named = wanted.get("partitions", [0, 1, 2])
        assert moves == {one: (before[one], offsets_after[one]) for one in named}, wanted
        assert committed() == before, "a preview changes nothing"
        done = post_json(web, f"/api/v1/groups/reset?id={group}", {"plan": plan["plan"]})
        assert (done.status_code, committed()) == (200, offsets_after), wanted

    with web.client("olga") as client:
        page = client.get("/groups/reset", params={"id": group, "scope": "all", "to": "offset", "offset": "-1"})  # fmt: skip
        assert "greater than or equal to 0" in page.text
        assert "Move the offsets" not in page.text
    member = {"group.id": group, "client.id": "busy", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, **member})
    consumer.subscribe([topic])
    wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1] != [], 60, "a member")
    before = committed()
    refused = preview(to="start").json()
    assert (refused["is_possible"], refused["plan"]) == (False, None)
    assert "busy" in refused["members"][0]
    consumer.close()
    assert committed() == before


def test_a_quiet_group_that_has_read_all_is_well_and_one_that_nobody_reads_for_is_not(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    """C133, as far as it takes no hours: the rules over time are those of test_lag_status.py."""
    topic = new_topic_name()
    make(gateway, topic, [(SystemClock().wall_ms() - 8 * HOUR_MS, b"k", b"v")] * 5)
    key = TopicPartition(topic, 0)
    quiet, behind = f"quiet-{topic}", f"behind-{topic}"
    gateway.groups.alter_offsets(quiet, {key: 5})
    gateway.groups.alter_offsets(behind, {key: 0})

    def told(group: str) -> Any:
        answer = ada.get("/api/v1/groups/detail", params={"id": group})
        return answer.json() if answer.status_code == 200 else None

    wait_until(lambda: told(quiet) is not None and told(behind) is not None, 60, "both groups")
    assert (told(quiet)["lag"], told(quiet)["status"]) == (0, "ok")
    assert told(behind)["lag"] == 5
    # What is written later counts without any commit.
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(30) == 0
    wait_until(lambda: told(behind)["lag"] == 6 and told(quiet)["lag"] == 1, 60, "the new end")


def test_a_group_whose_topic_is_gone_and_one_that_never_committed_are_shown(
    gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    kept, gone = new_topic_name(), new_topic_name()
    both, only_gone = f"both-{kept}", f"gone-{kept}"
    gateway.create_topics([kept, gone], partitions=1, replication_factor=1)
    gateway.groups.alter_offsets(both, {TopicPartition(kept, 0): 0, TopicPartition(gone, 0): 0})
    gateway.groups.alter_offsets(only_gone, {TopicPartition(gone, 0): 0})
    gateway.delete_topics([gone])

    def detail() -> httpx.Response:
        return ada.get("/api/v1/groups/detail", params={"id": both})

    wait_until(lambda: detail().status_code == 200, 60, "the group in a snapshot")
    wait_until(lambda: ada.get(f"/api/v1/topics/{gone}").status_code == 404, 60, "the topic's end")
    of_kept = [one for one in detail().json()["partitions"] if one["topic"] == kept]
    assert [one["committed_offset"] for one in of_kept] == [0], json.dumps(detail().json())
    for group in (both, only_gone):
        for path in ("/groups/detail", "/groups/reset"):
            page = ada.get(path, params={"id": group})
            assert page.status_code == 200, f"{path} of {group}: {page.status_code}"
    assert ada.get("/groups/", params={"q": kept}).status_code == 200
    assert ada.get("/groups/detail", params={"id": f"no-{kept}"}).status_code == 404
    preview = ada.get("/groups/reset", params={"id": f"no-{kept}"})
    assert preview.status_code in (200, 404)


def test_nothing_that_looks_at_a_deleted_topic_makes_it_anew(
    web: WebProcess, gateway: Gateway, ada: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    """The broker would make it: `auto.create.topics.enable` is on."""
    topic, group = new_topic_name(), f"of {new_topic_name()}"
    gateway.create_topics([topic], partitions=1, replication_factor=1)
    gateway.groups.alter_offsets(group, {TopicPartition(topic, 0): 0})
    gateway.delete_topics([topic])

    pages = [
        f"/topics/{topic}/{part}"
        for part in (
            "", "messages/", "settings/", "settings/retention.ms/", "groups/", "produce/", "connect/",
            "danger/", "partitions/", "0/0/",
        )
    ]  # fmt: skip
    pages += [f"/retention/{topic}/", f"/tail/?topic={topic}", f"/topics/~empty/?topic={topic}"]
    reads = [
        f"/api/v1/topics/{topic}{part}" for part in ("", "/settings", "/records", "/records/0/0")
    ]
    reads += [f"/groups/detail?id={group}", f"/groups/reset?id={group}"]
    for path in pages + reads:
        answer = ada.get(path)
        assert answer.status_code < 500, f"{path}: {answer.status_code}"
    for path, body in (
        ("empty", {}),
        ("partitions", {"total": 2}),
        ("records", {"records": [{"value": "x"}]}),
    ):
        answer = post_json(web, f"/api/v1/topics/{topic}/{path}", body)
        assert answer.status_code in (404, 422), f"{path}: {answer.status_code} {answer.text}"
    preview = post_json(
        web, f"/api/v1/groups/reset/preview?id={group}", {"to": "end", "topic": topic}
    )
    assert preview.status_code < 500, preview.text

    assert topic not in {one.name for one in gateway.cluster().topics}


def post_json(web: WebProcess, path: str, body: Any) -> httpx.Response:
    with web.client("ada") as client:
        client.get("account/password/")
        token = next(value for name, value in client.cookies.items() if name.endswith("_csrf"))
        return client.post(path, json=body, headers={"X-CSRFToken": token})
