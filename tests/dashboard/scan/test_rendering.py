"""What of a record is told to the page."""

import pytest

from dashboard.cluster import Record
from dashboard.scan import rendering
from dashboard.scan.requests import LIST_CUT


def test_json_keeps_every_digit_and_every_duplicate() -> None:
    text = rendering.pretty(b'{"a":9007199254740993,"a":1.10,"b":[],"c":{"d":1e400,"e":" x : y "}}')

    assert text == (
        '{\n  "a": 9007199254740993,\n  "a": 1.10,\n  "b": [],\n  "c": {\n    "d": 1e400,\n'
        '    "e": " x : y "\n  }\n}'
    )


@pytest.mark.parametrize(
    "data",
    [b"", b"text", b"{", b'{"a":}', b"[" * 100_000, b"\xff{}", b"12", b'"text"'],
)
def test_what_is_no_object_or_list_of_json_is_not_set_anew(data: bytes) -> None:
    assert rendering.pretty(data) is None


def test_deep_nesting_does_not_make_much_of_little() -> None:
    data = b"[" * 900 + b"1," * 200_000 + b"1" + b"]" * 900

    text = rendering.pretty(data, 10_000)

    assert text is not None
    assert len(text) < 11_000


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a": 1}', "json"),
        (b"plain \xc3\xa9 text\n", "text"),
        (b"\x00\x01\x02\xff", "hex"),
        (b"\x00\x00\x00\x00\x01", "hex"),
        (b"", "text"),
    ],
)
def test_the_view_is_chosen_by_what_the_bytes_are(data: bytes, shown: str) -> None:
    assert rendering.part(data, "auto", 100)["as"] == shown


def test_a_long_text_is_cut_between_characters() -> None:
    part = rendering.part("é".encode() * 5_000, "auto", 100)

    assert part == {"as": "text", "text": "é" * 100, "size": 10_000, "is_cut": True}


def test_a_text_that_fits_is_whole() -> None:
    assert rendering.part(b"x" * 100, "auto", 100)["is_cut"] is False


def test_nothing_and_no_bytes_are_told_apart() -> None:
    assert rendering.part(None, "auto", 10)["as"] == "null"
    assert rendering.part(b"", "auto", 10)["as"] == "text"


def test_a_text_cannot_hide_or_turn_what_stands_beside_it() -> None:
    assert rendering.visible("a\x00b\u202ec\x1b[31m\td\n") == "a\u2400b\\u202ec\u241b[31m\td\n"


def test_the_hex_view_has_places_and_letters() -> None:
    assert rendering.hex_dump(b"odradek \x00\xff") == (
        "00000000  6f 64 72 61 64 65 6b 20  00 ff                    odradek .."
    )


def test_headers_stay_pairs_in_order_with_duplicates_and_nulls() -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"2"), ("", b"")]
    record = Record("t", 0, 2**53 + 1, 1, 5, b"k", b"v", headers)

    row = rendering.row(record, "auto", LIST_CUT)

    assert row["headers"] == [["a", "1"], ["b", None], ["a", "2"], ["", ""]]
    assert row["offset"] == "9007199254740993"


def test_a_sample_comes_back_as_the_record_that_it_was() -> None:
    record = Record("t", 1, 2, 1, 3, None, b"\xff", [("a", None), ("a", b"\x00")])
    sample = rendering.sample(record)

    assert sample is not None
    assert rendering.from_sample(sample) == record
