"""The child as its parent meets it, reading from real brokers: ours and Apache Kafka."""

import csv
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from broker.clock import SystemClock
from dashboard.gateway import Gateway
from dashboard.scan.requests import (
    Bounds,
    CheckRequest,
    Cluster,
    ExportRequest,
    Range,
    RecordRequest,
    Request,
    ScanRequest,
    Wanted,
)
from dashboard.scan_child import ChildGone, ScanChild
from tests.support.fixtures import Broker

NewName = Callable[[], str]
Answers = list[dict[str, Any]]
WAIT_S = 60
# Later than the marks of transactions, which have the time at which they were made: a look-up by
# time finds these, too. Not long ago, as retention would delete the records while the test looks on.
TIME_MS = SystemClock().wall_ms() + 600_000


@pytest.fixture
def child() -> Iterator[ScanChild]:
    child = ScanChild()
    yield child
    child.kill()


def ask(child: ScanChild, request: Request) -> Answers:
    child.ask(request)
    answers: Answers = []
    while not answers or not {"done", "failed"} & set(answers[-1]):
        answer = child.read(WAIT_S)
        assert answer is not None, "no answer in time"
        answers.append(answer)
    return answers


def scan(
    child: ScanChild, broker: Broker, chosen: Range, wanted: Wanted = Wanted(), **more: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(rows, the last answer)."""
    bounds = more.pop("bounds", Bounds(seconds=30))
    request = ScanRequest(Cluster(broker.bootstrap), chosen, wanted, bounds, **more)
    answers = ask(child, request)
    return [answer["row"] for answer in answers if "row" in answer], answers[-1]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"]["text"] for row in rows]


@pytest.fixture
def topic(broker: Broker, new_topic_name: NewName) -> str:
    """Two partitions: v0 to v99 by turns, with keys, and headers on some. On Apache Kafka (ours has
    no transactions of its own yet) in transactions, of which two are aborted."""
    name = new_topic_name()
    gateway = Gateway(broker.bootstrap)
    gateway.check()
    gateway.create_topics([name], partitions=2, replication_factor=1)
    settings = {"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"}
    if has_transactions(broker):
        settings["transactional.id"] = f"{name}-writer"
    producer = Producer(settings)
    if has_transactions(broker):
        producer.init_transactions(30)
    for start in range(0, 100, 10):
        if has_transactions(broker):
            producer.begin_transaction()
        for number in range(start, start + 10):
            producer.produce(
                name,
                f"v{number}".encode(),
                key=f"k{number}".encode(),
                partition=number % 2,
                timestamp=TIME_MS + number,
                headers=[("h", b"1"), ("h", None)] if number % 4 == 0 else [],
            )
        assert producer.flush(30) == 0
        if has_transactions(broker):
            end = producer.abort_transaction if start in ABORTED else producer.commit_transaction
            end(30)
    return name


ABORTED = (30, 90)


def has_transactions(broker: Broker) -> bool:
    return broker.name == "apache"


def committed(broker: Broker) -> list[int]:
    aborted = ABORTED if has_transactions(broker) else ()
    return [number for number in range(100) if number // 10 * 10 not in aborted]


def test_a_scan_sees_what_is_committed_in_the_order_of_time(
    broker: Broker, topic: str, child: ScanChild
) -> None:
    newest, last = scan(child, broker, Range(topic), rows=50)
    positions = {int(key): at for key, at in last["done"]["progress"]["positions"].items()}
    rest, end = scan(child, broker, Range(topic, cursor=positions), rows=50)
    back, _ = scan(child, broker, Range(topic, cursor=positions, way="forward"), rows=200)
    oldest, _ = scan(child, broker, Range(topic, start="oldest", way="forward"), rows=200)

    expected = [f"v{number}" for number in committed(broker)]
    assert texts(newest + rest) == expected[::-1]
    assert texts(back) == texts(newest)[::-1]
    assert texts(oldest) == expected
    assert last["done"]["reason"] == "full"
    assert end["done"]["reason"] == "end"


def test_a_scan_starts_where_it_is_told_to(broker: Broker, topic: str, child: ScanChild) -> None:
    def first(chosen: Range) -> list[str]:
        return texts(scan(child, broker, chosen, rows=2)[0])

    assert first(Range(topic, (1,), "offset", 3, way="forward")) == ["v7", "v9"]
    assert first(Range(topic, (), "time", TIME_MS + 50, way="forward")) == ["v50", "v51"]
    assert first(Range(topic, (0,), "last", 10**9, way="forward")) == ["v0", "v2"]
    assert first(Range(topic, (0,), "offset", 10**18, way="forward")) == []


def test_a_range_of_times_holds_the_same_records_both_ways_round_and_reads_no_others(
    broker: Broker, topic: str, child: ScanChild
) -> None:
    times = {"since_ms": TIME_MS + 20, "until_ms": TIME_MS + 60}
    expected = [f"v{number}" for number in committed(broker) if 20 <= number < 60]
    oldest, end = scan(child, broker, Range(topic, start="oldest", way="forward", **times), rows=99)
    assert texts(oldest) == expected
    assert end["done"]["reason"] == "end"
    assert end["done"]["progress"]["scanned"] == len(expected)

    newest, last = scan(child, broker, Range(topic, **times), rows=10)
    while last["done"]["reason"] == "full":
        positions = {int(key): at for key, at in last["done"]["progress"]["positions"].items()}
        rows, last = scan(child, broker, Range(topic, cursor=positions, **times), rows=10)
        newest += rows
    assert texts(newest) == expected[::-1]

    only_since, _ = scan(child, broker, Range(topic, since_ms=TIME_MS + 60), rows=99)
    only_until, _ = scan(child, broker, Range(topic, until_ms=TIME_MS + 20), rows=99)
    assert texts(only_since + newest + only_until) == [f"v{n}" for n in committed(broker)][::-1]
    none, empty = scan(
        child, broker, Range(topic, since_ms=TIME_MS + 1_000, until_ms=TIME_MS + 2_000)
    )
    assert (none, empty["done"]["progress"]["total"]) == ([], 0)


def test_a_record_stamped_ahead_does_not_end_a_range_that_ends_now_and_is_counted(
    broker: Broker, new_topic_name: NewName, child: ScanChild
) -> None:
    name = new_topic_name()
    Gateway(broker.bootstrap).create_topics([name], partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    now_ms = SystemClock().wall_ms()
    for number in range(10):
        ahead_ms = 1_800_000 if number in (3, 6) else 0
        producer.produce(name, f"v{number}".encode(), timestamp=now_ms - 10 + number + ahead_ms)
    assert producer.flush(30) == 0
    until_now = Range(name, until_ms=now_ms + 1, reads_to_end=True)

    rows, end = scan(child, broker, until_now)
    assert texts(rows) == [f"v{number}" for number in reversed(range(10)) if number not in (3, 6)]
    assert end["done"]["progress"]["outside"] == 2
    # In every other way to look they are where their offsets are.
    everything, _ = scan(child, broker, Range(name, start="oldest", way="forward"))
    assert texts(everything) == [f"v{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (Wanted(in_key="k1"), [1, *range(10, 20)]),
        (Wanted(in_value="7", in_header="h"), [72, 76]),
        (Wanted(in_header="h", in_value="8"), [8, 28, 48, 68, 80, 84, 88]),
        (Wanted("partition == 1 && value.matches('^v[0-9]$')"), [1, 3, 5, 7, 9]),
        (Wanted("headers['h'] == null && offset < 2"), [0]),
    ],
)
def test_a_filter_finds_what_it_says(
    broker: Broker, topic: str, child: ScanChild, wanted: Wanted, numbers: list[int]
) -> None:
    rows, _ = scan(child, broker, Range(topic, start="oldest", way="forward"), wanted, rows=200)

    assert texts(rows) == [f"v{number}" for number in numbers]


def test_what_cannot_be_evaluated_is_counted_and_the_first_is_named(
    broker: Broker, topic: str, child: ScanChild
) -> None:
    wanted = Wanted("headers['h'] == null")
    _, last = scan(child, broker, Range(topic, start="oldest", way="forward"), wanted, rows=200)

    figures = last["done"]["progress"]
    assert figures["errors"] == sum(number % 4 != 0 for number in committed(broker))
    assert figures["first_error"].startswith("partition 1, offset 0: ")


def test_a_bound_ends_a_scan_that_can_go_on(broker: Broker, topic: str, child: ScanChild) -> None:
    chosen = Range(topic, start="oldest", way="forward")
    some, last = scan(child, broker, chosen, bounds=Bounds(records=33), rows=200)
    positions = {int(key): at for key, at in last["done"]["progress"]["positions"].items()}
    rest, _ = scan(child, broker, Range(topic, cursor=positions, way="forward"), rows=200)

    assert last["done"]["reason"] == "records"
    assert texts(some + rest) == [f"v{number}" for number in committed(broker)]


def test_a_record_has_its_neighbours_over_holes(
    broker: Broker, topic: str, child: ScanChild
) -> None:
    # On Apache Kafka each ten records end with a mark in each partition: v29 has offset 16, the mark
    # 17, five aborted records follow with their own mark, and v41 has offset 24.
    offset, after = (16, 24) if has_transactions(broker) else (14, 15)
    place = RecordRequest(Cluster(broker.bootstrap), topic, 1, offset)
    row, done = ask(child, place)

    assert row["row"]["value"]["text"] == "v29"
    assert done["done"]["before"] == str(offset - 1)
    assert done["done"]["after"] == str(after)
    if has_transactions(broker):
        (hole,) = ask(child, RecordRequest(Cluster(broker.bootstrap), topic, 1, 18))
        assert (hole["done"]["before"], hole["done"]["after"]) == ("16", "24")


def test_an_export_holds_each_record_once_and_exactly(
    broker: Broker, topic: str, child: ScanChild, tmp_path: Path
) -> None:
    gateway = Gateway(broker.bootstrap)
    writer = gateway.writer(topic)
    writer.send(0, b"\xff\x00", None, [("h", b"\xfe"), ("h", None)], partition=0)
    writer.send(1, 'é,"\n'.encode(), b"", partition=1)
    writer.send(2, None, b"gone", partition=1)
    assert writer.flush(30) == 0
    chosen = Range(topic, start="oldest", way="forward")
    found = {}
    for format_ in ("ndjson", "csv"):
        path = tmp_path / format_
        request = ExportRequest(
            Cluster(broker.bootstrap), chosen, Wanted(), Bounds(), str(path), format_, 10**9
        )
        found[format_] = ask(child, request)[-1]["done"]
        assert found[format_]["file_bytes"] == path.stat().st_size

    lines = [json.loads(line) for line in (tmp_path / "ndjson").read_text().splitlines()]
    rows = list(csv.DictReader((tmp_path / "csv").read_text().splitlines(keepends=True)))
    expected = [f"v{number}" for number in committed(broker)]
    assert [line["value"] for line in lines if str(line["key"]).startswith("k")] == expected
    assert [row["value"] for row in rows if row["key"].startswith("k")] == expected
    assert len(lines) == len(rows) == len(expected) + 3
    by_key = {line["key"]: line for line in lines}
    assert by_key[None]["value"] == {"base64": "/wA="}
    assert by_key[None]["headers"] == [
        {"name": "h", "value": {"base64": "/g=="}},
        {"name": "h", "value": None},
    ]
    assert by_key[""]["value"] == 'é,"\n'
    assert by_key["gone"]["value"] is None
    kinds = {
        (row["key_encoding"], row["value_encoding"], row["value"])
        for row in rows
        if row["key"][:1] != "k"
    }
    assert kinds == {
        ("null", "base64", "/wA="),
        ("text", "text", 'é,"\n'),
        ("text", "null", ""),
    }


def test_an_export_ends_at_the_bound_of_its_file(
    broker: Broker, topic: str, child: ScanChild, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    chosen = Range(topic, start="oldest", way="forward")
    request = ExportRequest(
        Cluster(broker.bootstrap), chosen, Wanted(), Bounds(), str(path), "ndjson", 1_000
    )

    assert ask(child, request)[-1]["done"]["reason"] == "file"
    assert path.stat().st_size <= 1_000
    assert path.read_bytes().endswith(b"}\n")


def test_raw_bytes_come_whole(
    broker: Broker, new_topic_name: NewName, child: ScanChild, tmp_path: Path
) -> None:
    name = new_topic_name()
    value = os.urandom(900_000)
    writer = Gateway(broker.bootstrap).writer(name)
    Gateway(broker.bootstrap).create_topics([name], partitions=1, replication_factor=1)
    writer.send(0, value, b"key", partition=0)
    assert writer.flush(30) == 0
    path = tmp_path / "raw"
    request = RecordRequest(
        Cluster(broker.bootstrap), name, 0, 0, save_part="value", save_path=str(path)
    )

    assert ask(child, request) == [
        {"done": {"low": "0", "high": "1", "before": None, "after": None, "saved_bytes": 900_000}}
    ]
    assert path.read_bytes() == value


def test_what_is_wrong_is_told_and_the_child_goes_on(
    broker: Broker, topic: str, child: ScanChild
) -> None:
    def failure(chosen: Range, wanted: Wanted = Wanted()) -> dict[str, Any]:
        return scan(child, broker, chosen, wanted)[1]["failed"]  # type: ignore[no-any-return]

    assert failure(Range(topic), Wanted("json."))["column"] is not None
    assert failure(Range(topic, (7,)))["kind"] == "range"
    assert failure(Range("no-such-topic"))["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert child.is_alive


def test_an_expression_is_tried_on_samples(child: ScanChild) -> None:
    sample = {
        "topic": "t", "partition": 0, "offset": 1, "timestamp_type": 1, "timestamp_ms": 2,
        "key": None, "value": "eyJhIjoxfQ==", "headers": [],
    }  # fmt: skip

    (done,) = ask(child, CheckRequest("json.a == 1", (sample, sample)))
    (failed,) = ask(child, CheckRequest("json.a ==", (sample,)))

    assert done["done"]["matched"] == 2
    assert failed["failed"]["line"] == 1


def test_a_child_that_is_killed_is_told_apart_from_one_that_hangs() -> None:
    for number, words in ((signal.SIGKILL, "memory"), (signal.SIGALRM, "too long")):
        child = ScanChild()
        os.kill(child.pid, number)
        with pytest.raises(ChildGone, match=words):
            child.read(WAIT_S)
        child.kill()


def test_a_child_is_bounded_and_knows_no_secret(
    child: ScanChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_SECRET_KEY", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgres://u:s3cret@h/d")
    with_secrets = ScanChild()
    ask(with_secrets, CheckRequest("true"))
    environment = Path(f"/proc/{with_secrets.pid}/environ").read_bytes()
    limits = Path(f"/proc/{with_secrets.pid}/limits").read_text()
    nice = int(Path(f"/proc/{with_secrets.pid}/stat").read_text().rpartition(")")[2].split()[16])
    with_secrets.kill()

    assert b"s3cret" not in environment
    assert nice >= 10
    assert next(line for line in limits.splitlines() if "data size" in line).split()[3].isdecimal()
