import json

import pytest

from appliance.failure import ItemError
from appliance.output import Column, Report, Table, format_size, to_yaml

COLUMNS = (
    Column("name"),
    Column("message_count", "count"),
    Column("size", "size"),
    Column("replicas"),
    Column("last_record", "moment"),
    Column("topic_id", is_wide=True),
)
ROW = {
    "name": "orders",
    "message_count": 12,
    "size": 1500,
    "replicas": (1, 2),
    "last_record": 1_700_000_000_000,
    "topic_id": "abc",
}
UNKNOWN = {"name": "x"}


@pytest.fixture
def report() -> Report:
    error = ItemError("INVALID_CONFIG", "no such key", {"topic": "x"}, "Look it up.")
    return Report([Table(COLUMNS, [ROW, UNKNOWN])], [error])


def test_text_has_upper_case_dash_headers_and_dashes_for_the_unknown(report: Report) -> None:
    assert report.render("text").splitlines() == [
        "NAME    MESSAGE-COUNT    SIZE  REPLICAS  LAST-RECORD",
        "orders             12  1.5 KB  1,2       2023-11-14T22:13:20.000Z",
        "x                   -       -  -         -",
    ]


def test_wide_adds_columns(report: Report) -> None:
    assert report.render("wide").splitlines()[0].endswith("TOPIC-ID")


def test_json_is_one_document_with_whole_numbers_and_times_twice(report: Report) -> None:
    document = json.loads(report.render("json"))
    assert document["data"][0] == {
        "name": "orders",
        "message_count": 12,
        "size": 1500,
        "replicas": [1, 2],
        "last_record_ms": 1_700_000_000_000,
        "last_record_time": "2023-11-14T22:13:20.000Z",
        "topic_id": "abc",
    }
    assert document["data"][1]["last_record_ms"] is None
    assert document["errors"] == [
        {"topic": "x", "code": "INVALID_CONFIG", "message": "no such key", "hint": "Look it up."}
    ]


def test_tsv_holds_raw_values(report: Report) -> None:
    assert report.render("tsv").splitlines()[1].split("\t")[:4] == ["orders", "12", "1500", "1,2"]


def test_tsv_keeps_one_row_a_line() -> None:
    table = Table([Column("value")], [{"value": "a\tb\nc\\d"}])
    assert Report([table]).render("tsv") == "VALUE\na\\tb\\nc\\\\d\n"


def test_an_empty_table_still_has_its_header() -> None:
    assert Report([Table([Column("name")])]).render("text") == "NAME\n"


def test_yaml_is_block_style_with_quoted_strings() -> None:
    value = {"data": [{"a": 1, "b.c": "x: y", "empty": [], "list": [1, "no"]}], "errors": []}
    assert to_yaml(value).splitlines() == [
        "data:",
        "  - a: 1",
        '    "b.c": "x: y"',
        "    empty: []",
        "    list:",
        "      - 1",
        '      - "no"',
        "errors: []",
    ]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1536, "1.54 KB"),
        (999_600, "1000 KB"),
        (123_456_789, "123 MB"),
        (5 * 10**15, "5 PB"),
        (10**19, "10000 PB"),
    ],
)
def test_sizes_need_three_digits(count: int, expected: str) -> None:
    assert format_size(count) == expected


def test_colour_marks_lines_by_their_verdict() -> None:
    table = Table([Column("status", "status")], [{"status": "OK"}, {"status": "FAIL"}])
    _, good, bad = Report([table]).render("text", color=True).splitlines()
    assert good.startswith("\x1b[32m")
    assert bad.startswith("\x1b[31m")
