"""Every report on known data: its figures against those that plain Python computes from the same."""

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark_tasks.job import Format, PartitionRange
from spark_tasks.report import ReportError
from tests.support.odradek import OdradekBroker
from tests.support.spark import SparkInThisProcess, read_topic

BASE_MS = 1_700_000_040_000
SCHEMA = "user string, page string, price double, at long, took double, nested struct<deep: string>"


@dataclass
class Written:
    """What was produced, in the order of offsets; `ranges` is all of it."""

    bootstrap: str
    topic: str
    records: list[dict[str, Any]]
    ranges: tuple[PartitionRange, ...] = field(default=())


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def window(ms: int, seconds: int) -> str:
    return moment(ms // (seconds * 1000) * seconds * 1000)


def shop_records(count: int = 900) -> list[dict[str, Any]]:
    """Orders of three users on five pages, some late, some broken, some tombstones."""
    found = []
    for number in range(count):
        happened = BASE_MS + number * 700 - (90_000 if number % 50 == 7 else 0)
        data: Any = {
            "user": f"u{number % 3}",
            "page": f"/p{number * number % 5}",
            "price": number * 0.01,
            "at": happened,
            "took": (number * 37 % 101) / 10,
            "nested": {"deep": "x" if number % 4 else None},
        }
        value: bytes | None = json.dumps(data).encode()
        if number % 100 == 11:
            value, data = b"{broken", None
        if number % 100 == 23:
            value, data = None, None
        found.append(
            {
                "partition": 0 if number % 3 else 1,
                "key": None if number % 90 == 1 else f"k{number % 40}",
                "timestamp": BASE_MS + number * 700 + 1_500,
                "value": value,
                "data": data,
            }
        )
    return found


def produce(broker: OdradekBroker, topic: str, records: list[dict[str, Any]]) -> Written:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics(
        [NewTopic(topic, 2, 1, config={"retention.ms": "-1"})]
    ).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    ends = [0, 0]
    for each in records:
        producer.produce(
            topic, key=each["key"], value=each["value"], partition=each["partition"],
            timestamp=each["timestamp"],
        )  # fmt: skip
        each["offset"] = ends[each["partition"]]
        ends[each["partition"]] += 1
    assert producer.flush(60) == 0
    ranges = tuple(PartitionRange(topic, number, 0, end, 0, end) for number, end in enumerate(ends))
    return Written(broker.bootstrap, topic, records, ranges)


@pytest.fixture(scope="module")
def shop(shared_odradek: OdradekBroker) -> Written:
    return produce(shared_odradek, "shop-for-reports", shop_records())


Run = Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]


@pytest.fixture
def run(spark: SparkInThisProcess, shop: Written, tmp_path: Path) -> Run:
    def run_report(
        report: str, parameters: dict[str, str], schema: str = SCHEMA, **more: Any
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        more.setdefault("ranges", shop.ranges)
        more.setdefault("format_", Format("json", schema))
        return spark.run(report, parameters, tmp_path / report, bootstrap=shop.bootstrap, **more)

    return run_report


def parsed(shop: Written) -> list[dict[str, Any]]:
    return [each for each in shop.records if each["data"] is not None]


def test_events_are_counted_by_window_and_group(run: Run, shop: Written) -> None:
    rows, said = run("events-over-time", {"window": "1m", "group": "page"})
    expected = Counter((window(e["timestamp"], 60), e["data"]["page"]) for e in parsed(shop))
    assert {(r["window_start"], r["group"]): r["events"] for r in rows} == expected
    assert rows == sorted(rows, key=lambda row: (row["window_start"], row["group"]))
    broken = [e for e in shop.records if e["value"] == b"{broken"]
    first = min((e["partition"], e["offset"]) for e in broken)
    assert said["read"] == {
        "records": len(shop.records),
        "not_parsed": len(broken),
        "tombstones": sum(e["value"] is None for e in shop.records),
        "first_not_parsed": {"topic": shop.topic, "partition": first[0], "offset": first[1]},
    }


def test_groups_beyond_the_largest_are_added_up(run: Run, shop: Written) -> None:
    rows, _ = run("events-over-time", {"window": "1d", "group": "page", "groups": "2"})
    totals = Counter(e["data"]["page"] for e in parsed(shop))
    largest = sorted(totals, key=lambda page: (-totals[page], page))[:2]
    named = {page: totals[page] for page in largest}
    named["(others)"] = sum(totals.values()) - sum(named.values())
    by_group: Counter[str] = Counter()
    for row in rows:
        by_group[row["group"]] += row["events"]
    assert by_group == named


def test_events_follow_a_time_in_the_data(run: Run, shop: Written) -> None:
    rows, _ = run("events-over-time", {"window": "1m", "time_field": "at"})
    expected = Counter(window(e["data"]["at"], 60) for e in parsed(shop))
    assert {row["window_start"]: row["events"] for row in rows} == expected


def test_top_values_are_exact(run: Run, shop: Written) -> None:
    rows, _ = run("top-values", {"field": "@key", "n": "5"})
    totals = Counter(e["key"] or "(none)" for e in parsed(shop))
    order = sorted(totals, key=lambda key: (-totals[key], key))[:5]
    assert [(r["rank"], r["value"], r["records"]) for r in rows] == [
        (number, key, totals[key]) for number, key in enumerate(order, 1)
    ]
    assert all(math.isclose(r["share"], r["records"] / len(parsed(shop))) for r in rows)


def test_sums_by_key_add_up_as_decimals(run: Run, shop: Written) -> None:
    rows, _ = run("sums-by-key", {"key": "user", "amount": "price", "distinct": "page"})
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in parsed(shop):
        groups[each["data"]["user"]].append(each["data"])
    found = {row["key"]: row for row in rows}
    assert found.keys() == groups.keys()
    for key, group in groups.items():
        cents = [round(each["price"] * 100) for each in group]
        row = found[key]
        assert row["records"] == len(group)
        assert round(float(row["sum"]) * 100) == sum(cents)
        assert round(float(row["smallest"]) * 100) == min(cents)
        assert round(float(row["largest"]) * 100) == max(cents)
        assert row["distinct_values"] == len({each["page"] for each in group})


@pytest.mark.slow
def test_percentiles_interpolate_and_gaps_are_shown(run: Run, shop: Written) -> None:
    rows, _ = run("metric-percentiles", {"value": "took", "window": "1s", "percentiles": "50,95"})
    groups: dict[str, list[float]] = defaultdict(list)
    for each in parsed(shop):
        groups[window(each["timestamp"], 1)].append(each["data"]["took"])
    times = [each["timestamp"] // 1000 for each in parsed(shop)]
    count = max(times) - min(times) + 1
    assert [row["window_start"] for row in rows] == [
        moment((min(times) + number) * 1000) for number in range(min(count, 1000))
    ]
    for row in rows:
        values = sorted(groups.get(row["window_start"], []))
        assert row["records"] == len(values)
        if not values:
            assert row["p50"] is None
            continue
        assert math.isclose(row["p50"], statistics.median(values))
        place = 0.95 * (len(values) - 1)
        low, high = values[math.floor(place)], values[math.ceil(place)]
        assert math.isclose(row["p95"], low + (high - low) * (place - math.floor(place)))


def test_throughput_tells_skew(run: Run, shop: Written) -> None:
    rows, _ = run("throughput", {}, format_=Format())
    whole = len(shop.records)
    span = (
        max(e["timestamp"] for e in shop.records) - min(e["timestamp"] for e in shop.records)
    ) / 1000
    for row in rows:
        mine = [e for e in shop.records if e["partition"] == row["partition"]]
        assert row["records"] == len(mine)
        assert row["bytes"] == sum(len(e["key"] or "") + len(e["value"] or b"") for e in mine)
        assert math.isclose(row["skew"], len(mine) / (whole / 2))
        assert math.isclose(row["records_per_second"], len(mine) / span)
        assert row["first_at"] == moment(min(e["timestamp"] for e in mine))
    assert [row["partition"] for row in rows] == [0, 1]


@pytest.mark.slow
def test_late_and_out_of_order_events_are_counted(run: Run, shop: Written) -> None:
    rows, _ = run("late-events", {"time_field": "at", "allowed": "60"})
    for row in rows:
        mine = [e for e in parsed(shop) if e["partition"] == row["partition"]]
        newest, behind = None, []
        for each in mine:
            at = each["data"]["at"]
            behind.append(0 if newest is None else newest - at)
            newest = at if newest is None else max(newest, at)
        late = [e["timestamp"] - e["data"]["at"] for e in mine]
        assert row["records"] == len(mine)
        assert row["out_of_order"] == sum(each > 0 for each in behind)
        assert row["beyond_allowed"] == sum(each > 60_000 for each in behind)
        assert math.isclose(row["most_behind_s"], max(behind) / 1000)
        assert math.isclose(row["largest_lateness_s"], max(late) / 1000)
        assert row["under_1s"] == sum(each < 1000 for each in late)
        assert row["under_10s"] == sum(1000 <= each < 10_000 for each in late)
        assert row["under_10m"] == sum(60_000 <= each < 600_000 for each in late)


@pytest.mark.slow
def test_data_quality_counts_everything_that_is_odd(run: Run, shop: Written) -> None:
    rows, _ = run("data-quality", {})
    counts = {row["check"]: row["records"] for row in rows}
    keys = [e["key"] for e in shop.records if e["key"] is not None]
    sizes = [len(e["key"] or "") + len(e["value"] or b"") for e in shop.records]
    assert counts["records"] == len(shop.records)
    assert counts["not parsed"] == sum(e["value"] == b"{broken" for e in shop.records)
    assert counts["tombstones"] == sum(e["value"] is None for e in shop.records)
    assert counts["null keys"] == len(shop.records) - len(keys)
    assert counts["duplicate keys"] == len(keys) - len(set(keys))
    assert counts["null in user"] == 0
    found = {row["check"]: row["bytes"] for row in rows}
    assert found["largest size"] == max(sizes)
    assert found["size p50"] == statistics.median(sizes)


@pytest.mark.slow
def test_retention_and_compaction_are_told_apart(run: Run, shop: Written) -> None:
    """As if 50 offsets were gone by retention, and the log were longer by 30 that hold nothing."""
    first, second = shop.ranges
    cut = (
        PartitionRange(shop.topic, 0, 50, first.end, 50, first.end),
        second,
    )
    rows, _ = run("retention-effect", {}, ranges=cut, format_=Format())
    mine = [e for e in shop.records if e["partition"] == 0 and e["offset"] >= 50]
    row = rows[0]
    assert (row["offsets_ever"], row["gone_by_retention"]) == (first.end, 50)
    assert (row["kept"], row["gone_by_compaction"]) == (len(mine), 0)
    keys = [e["key"] for e in mine if e["key"] is not None]
    assert (row["keys"], row["superseded"]) == (len(set(keys)), len(keys) - len(set(keys)))
    assert row["oldest_at"] == moment(min(e["timestamp"] for e in mine))


def test_lag_of_groups_comes_from_samples(run: Run, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    lines = [
        {"series": f"group.{kind}:{group}", "at_ms": BASE_MS + step * 10_000, "worth": worth}
        for step in range(12)
        for group in ("orders-a", "other")
        for kind, worth in (("lag", step * 5), ("lag_ms", step * 100))
    ]
    samples.write_text("\n".join(json.dumps(each) for each in lines))
    rows, _ = run("consumer-lag", {"groups": "orders-*", "window": "1m"}, samples=str(samples))
    expected: dict[str, list[int]] = defaultdict(list)
    for step in range(12):
        expected[window(BASE_MS + step * 10_000, 60)].append(step)
    assert {row["group"] for row in rows} == {"orders-a"}
    assert {row["window_start"]: (row["largest_lag"], row["mean_lag"]) for row in rows} == {
        start: (max(steps) * 5, statistics.mean(steps) * 5) for start, steps in expected.items()
    }
    assert [row["most_seconds_behind"] for row in rows] == [
        max(steps) / 10 for steps in expected.values()
    ]


def test_a_schema_is_inferred_from_the_first_records(run: Run, shop: Written) -> None:
    rows, said = run("sums-by-key", {"key": "nested.deep", "amount": "price"}, schema="")
    assert "`price` double" in said["schema"]
    assert "nested" in said["schema"]
    assert sum(row["records"] for row in rows) == len(parsed(shop))


def test_an_unknown_field_is_said_with_those_that_exist(run: Run) -> None:
    with pytest.raises(ReportError, match="no field 'colour'; they have: user, page, price"):
        run("top-values", {"field": "colour"})


def test_a_range_is_read_from_its_start_to_its_end(run: Run, shop: Written) -> None:
    part = (
        PartitionRange(shop.topic, 0, 100, 140, 0, 600),
        PartitionRange(shop.topic, 1, 7, 7, 0, 300),
    )
    _, said = run("throughput", {}, ranges=part, format_=Format())
    assert said["read"]["records"] == 40


def test_files_hold_the_same_as_the_rows(
    run: Run, tmp_path: Path, spark: SparkInThisProcess
) -> None:
    rows, said = run("top-values", {"field": "page"})
    directory = tmp_path / "top-values"
    kept = spark.session.read.parquet(str(directory / "result.parquet")).collect()
    assert [row.asDict() for row in kept] == rows
    csv_lines = (directory / "result.csv").read_text().splitlines()
    assert csv_lines[0] == "rank,value,records,share"
    assert len(csv_lines) == said["row_count"] + 1 == len(rows) + 1


def test_a_range_that_is_empty_has_a_result_without_rows(run: Run, shop: Written) -> None:
    nothing = tuple(PartitionRange(shop.topic, number, 5, 5, 0, 300) for number in (0, 1))
    rows, said = run("top-values", {"field": "@key"}, ranges=nothing)
    assert rows == []
    assert said["read"]["records"] == said["read"]["not_parsed"] == 0


def result_topic(shop: Written, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def as_pages_have_it(value: Any) -> Any:
    """Of the JSON in a result topic: decimals as text, offsets from UTC by figures."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str) and value.endswith("Z"):
        return value.removesuffix("Z") + "+00:00"
    return value


@pytest.mark.parametrize(
    ("report", "parameters"),
    [
        ("events-over-time", {"window": "1m", "group": "page"}),  # times
        ("metric-percentiles", {"value": "took", "window": "1s"}),  # nulls
        ("sums-by-key", {"key": "user", "amount": "price"}),  # decimals
    ],
)
def test_a_result_topic_holds_the_rows_in_their_order(
    run: Run, shop: Written, report: str, parameters: dict[str, str]
) -> None:
    topic = result_topic(shop, f"rows-of-{report}")
    rows, said = run(report, parameters, result_topic=topic, name="daily", run="7")

    written = read_topic(shop.bootstrap, topic, 2)

    assert len(written) == said["row_count"] == len(rows) > 0
    assert {record.key for record in written} == {report.encode()}
    assert {record.headers for record in written} == {(("report", b"daily"), ("run", b"7"))}
    found = [
        {
            name: as_pages_have_it(value)
            for name, value in json.loads(record.value or b"", parse_float=Decimal).items()
        }
        for record in written
    ]
    decimals = {each["name"] for each in said["columns"] if each["type"].startswith("decimal")}
    assert found == [
        {
            name: float(value) if name in decimals and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]


def test_a_report_on_samples_has_a_result_topic_too(
    run: Run, shop: Written, tmp_path: Path
) -> None:
    samples = tmp_path / "samples.jsonl"
    lines = [
        {"series": f"group.{kind}:billing", "at_ms": BASE_MS + step * 60_000, "worth": step}
        for step in range(3)
        for kind in ("lag", "lag_ms")
    ]
    samples.write_text("\n".join(json.dumps(each) for each in lines))
    topic = result_topic(shop, "rows-of-lag")
    rows, _ = run(
        "consumer-lag", {"groups": "*", "window": "1m"}, samples=str(samples), result_topic=topic
    )
    written = [json.loads(record.value or b"") for record in read_topic(shop.bootstrap, topic, 2)]
    assert [row["largest_lag"] for row in written] == [row["largest_lag"] for row in rows]
    assert len(written) == 3


def test_an_empty_result_writes_no_record(run: Run, shop: Written) -> None:
    nothing = tuple(PartitionRange(shop.topic, number, 5, 5, 0, 300) for number in (0, 1))
    topic = result_topic(shop, "rows-of-nothing")
    run("top-values", {"field": "@key"}, ranges=nothing, result_topic=topic)
    assert read_topic(shop.bootstrap, topic, 2) == []
