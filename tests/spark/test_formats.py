"""What is parsed, and what is counted as not parsed: nothing becomes a silent null."""

import struct
import warnings
from typing import Any

import pytest

from spark_tasks import formats
from spark_tasks.job import Format
from spark_tasks.report import ReportError
from tests.support.spark import SparkInThisProcess

COLUMNS = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
AVRO = (
    '{"type": "record", "name": "Order", "fields": ['
    '{"name": "name", "type": "string"}, {"name": "count", "type": "long"}]}'
)


def parse(
    spark: SparkInThisProcess, values: list[bytes | None], chosen: Format
) -> tuple[list[Any], str]:
    """For each value its data as a dict, None when it was not parsed, "tombstone" for those."""
    rows = [("t", 0, number, None, None, value) for number, value in enumerate(values)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = spark.session.createDataFrame(rows, COLUMNS)
        found, schema = formats.parse(records, chosen, records)
        kept = found.orderBy("offset").collect()
    return [
        "tombstone"
        if row.is_tombstone
        else row.data.asDict(recursive=True)
        if row.is_parsed
        else None
        for row in kept
    ], schema


def test_json_that_is_not_one_object_of_the_schema_is_not_parsed(spark: SparkInThisProcess) -> None:
    values = [
        b'{"a": 1, "b": "x"}',
        b' {"a": 2}\n',
        b'{"a": "one"}',
        b"not json",
        b'{"a": 1} and more',
        b'{"a": 1} {"a": 2}',
        b"5",
        b'[{"a": 1}]',
        b'\xff{"a": 1}',
        b"",
        b"null",
        None,
        b'{"a": 3, "unknown": true}',
    ]
    found, _ = parse(spark, values, Format("json", "a long, b string"))
    assert found == [
        {"a": 1, "b": "x"}, {"a": 2, "b": None}, None, None, None, None, None, None, None, None, None,
        "tombstone", {"a": 3, "b": None},
    ]  # fmt: skip


def test_an_inferred_schema_is_told(spark: SparkInThisProcess) -> None:
    values = [b'{"n": 1, "deep": {"x": [1.5]}}', b"broken"]
    found, schema = parse(spark, values, Format("json"))
    assert found == [{"n": 1, "deep": {"x": [1.5]}}, None]
    assert schema == "`deep` struct<x:array<double>>, `n` bigint"


def test_values_without_a_field_are_said(spark: SparkInThisProcess) -> None:
    with pytest.raises(ReportError, match="not JSON objects"):
        parse(spark, [b"plain text"], Format("json"))


def test_csv_with_a_wrong_number_or_count_is_not_parsed(spark: SparkInThisProcess) -> None:
    values = [b"1;one", b"2;'two'", b"x;three", b"4", b"5;five;more", None, b'6;"a;b"']
    found, _ = parse(spark, values, Format("csv", "n int, t string", separator=";"))
    assert found == [
        {"n": 1, "t": "one"}, {"n": 2, "t": "'two'"}, None, None, None, "tombstone",
        {"n": 6, "t": "a;b"},
    ]  # fmt: skip


def test_groups_of_an_expression_are_fields(spark: SparkInThisProcess) -> None:
    values = [b"GET /a 200", b"POST /b 503", b"GET /c", b"GET /d abc", None]
    chosen = Format(
        "regex", "status int", expression=r"^(GET|POST) (?<path>\S+) (?<status>(?:\d|\w)+)$"
    )
    found, schema = parse(spark, values, chosen)
    assert found == [
        {"path": "/a", "status": 200}, {"path": "/b", "status": 503}, None, None, "tombstone",
    ]  # fmt: skip
    assert schema == "`path` string, `status` int"


def zigzag(number: int) -> bytes:
    return bytes([number << 1])


def test_avro_behind_the_registry_s_prefix(spark: SparkInThisProcess) -> None:
    body = zigzag(2) + b"ab" + zigzag(7)
    prefixed = struct.pack(">bi", 0, 12) + body
    values = [prefixed, b"\x00\x00\x00\x00\x0c\xff", None]
    found, _ = parse(spark, values, Format("avro", AVRO, skip_bytes=5))
    assert found == [{"name": "ab", "count": 7}, None, "tombstone"]


def test_a_schema_that_is_none_is_said(spark: SparkInThisProcess) -> None:
    with pytest.raises(ReportError, match="the schema cannot be read"):
        parse(spark, [b"{}"], Format("json", "a nosuchtype"))
    with pytest.raises(ReportError, match="has to be a record"):
        parse(spark, [b"{}"], Format("avro", '"string"'))
    with pytest.raises(ReportError, match="no named group"):
        parse(spark, [b"{}"], Format("regex", expression="a+"))
