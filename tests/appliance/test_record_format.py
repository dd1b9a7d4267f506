import base64
import json
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.record_format import (
    compile_format,
    json_renderer,
    pretty_renderer,
    printable,
    rfc3339,
    unescape,
)
from appliance.writing import parse_json
from dashboard.cluster import Record

RECORD = Record("orders", 3, 42, 1, 1_700_000_000_123, b"k1", b"v1", [("a", b"1"), ("b", None)])
EMPTY = Record("orders", 0, 0, 0, -1, None, None, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t %p %o %T", b"orders 3 42 1700000000123"),
        ("%k=%v", b"k1=v1"),
        ("%s", b"v1"),
        ("%K %S %V", b"2 2 2"),
        ("%h", b"a=1,b=NULL"),
        (r"%k\t%v\n", b"k1\tv1\n"),
        (r"\x00\\\r\0%%", b"\x00\\\r\x00%"),
        ("plain", b"plain"),
        ("", b""),
        ("näher", "näher".encode()),
    ],
)
def test_formats(text: str, expected: bytes) -> None:
    assert compile_format(text)(RECORD) == expected


def test_null_is_empty_and_has_the_size_minus_one() -> None:
    assert compile_format("%k|%v|%K|%S|%h")(EMPTY) == b"||-1|-1|"


@pytest.mark.parametrize("text", ["%q", "%", r"\q", "\\", r"\x1", r"\xzz"])
def test_an_unknown_place_in_a_format_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not known in a format"):
        compile_format(text)


def test_payloads_go_out_byte_for_byte() -> None:
    payload = bytes(range(256))
    record = Record("t", 0, 0, 1, 0, None, payload, [])
    assert compile_format("%v")(record) == payload


def test_separators_are_unescaped() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape("%") == b"%"


def test_json_lines_carry_everything() -> None:
    line = json_renderer()(RECORD)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123Z",
        "timestamp_type": "CreateTime",
        "key": "k1",
        "value": "v1",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


def test_json_without_payload_tells_sizes() -> None:
    found = json.loads(json_renderer(meta_only=True)(EMPTY))
    assert found["key_size"] is None
    assert found["value_size"] is None
    assert "value" not in found


def test_what_is_not_text_is_base64_and_says_so() -> None:
    record = Record("t", 0, 0, 1, 0, b"\xff", b"\xfe", [])
    found = json.loads(json_renderer()(record))
    assert found["value_encoding"] == "base64"
    assert base64.b64decode(found["value"]) == b"\xfe"


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode())


@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
)
def test_what_consume_writes_as_json_produce_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = json_renderer()(Record("t", 0, 0, 1, 0, key, value, headers))
    assert line.count(b"\n") == 1
    assert parse_json(line) == (key, value, headers)


def test_a_line_for_people() -> None:
    line = pretty_renderer(UTC)(RECORD).decode()
    assert line == "2023-11-14T22:13:20.123Z orders[3]@42 k1: v1 [a=1,b=NULL]\n"
    assert pretty_renderer(UTC)(EMPTY) == b"- orders[0]@0 (null)\n"


def test_a_payload_cannot_command_the_terminal() -> None:
    record = Record("t", 0, 0, 1, 0, None, b"\x1b[2J\x07\r\n\xff", [])
    line = pretty_renderer(UTC)(record)
    assert line.endswith(b"\\x1b[2J\\x07\\r\\n\\xff\n")


@given(st.binary(max_size=30))
def test_printable_text_is_printable(data: bytes) -> None:
    assert all(character.isprintable() or character == "\t" for character in printable(data))


@pytest.mark.parametrize("timestamp_ms", [-1, -(2**63), 2**63 - 1])
def test_a_timestamp_that_is_no_time_is_none(timestamp_ms: int) -> None:
    assert rfc3339(timestamp_ms) is None
