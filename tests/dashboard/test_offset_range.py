import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.offset_range import (
    Anchor,
    Bound,
    OffsetRange,
    parse_bound,
    parse_duration_ms,
    parse_offset_range,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
START, END = Bound(Anchor.START), Bound(Anchor.END)


def offset(number: int) -> Bound:
    return Bound(Anchor.OFFSET, number)


def time(number: int) -> Bound:
    return Bound(Anchor.TIME, number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", OffsetRange(START)),
        ("beginning", OffsetRange(START)),
        ("end", OffsetRange(END)),
        (":end", OffsetRange(START, END)),
        ("+5", OffsetRange(Bound(Anchor.FROM_START, 5))),
        ("-5", OffsetRange(Bound(Anchor.FROM_END, 5))),
        ("-5:end", OffsetRange(Bound(Anchor.FROM_END, 5), END)),
        ("0", OffsetRange(offset(0))),
        ("17:", OffsetRange(offset(17))),
        (":17", OffsetRange(START, offset(17))),
        ("17:42", OffsetRange(offset(17), offset(42))),
        ("start:end", OffsetRange(START, END)),
        ("@1699999999999", OffsetRange(time(1_699_999_999_999))),
        ("@1699999999", OffsetRange(time(1_699_999_999_000))),
        ("@-1h", OffsetRange(time(NOW_MS - HOUR_MS))),
        ("@-1h30m", OffsetRange(time(NOW_MS - HOUR_MS * 3 // 2))),
        ("@-2h:-1h", OffsetRange(time(NOW_MS - 2 * HOUR_MS), time(NOW_MS - HOUR_MS))),
        ("@-2h:1h", OffsetRange(time(NOW_MS - 2 * HOUR_MS), time(NOW_MS - HOUR_MS))),
        ("@-2h:end", OffsetRange(time(NOW_MS - 2 * HOUR_MS), END)),
        ("@:-1h", OffsetRange(time(0), time(NOW_MS - HOUR_MS))),
        ("@2023-11-14", OffsetRange(time(1_699_920_000_000))),
        ("@2023-11-14T22:13:20Z", OffsetRange(time(NOW_MS))),
        ("@2023-11-15T00:13:20+02:00", OffsetRange(time(NOW_MS))),
        ("@2023-11-14T22:13:20Z:5m", OffsetRange(time(NOW_MS), time(NOW_MS + 300_000))),
        (
            "@2023-11-14T22:13:20:2023-11-14T22:13:21",
            OffsetRange(time(NOW_MS), time(NOW_MS + 1000)),
        ),
    ],
)
def test_offsets_and_times_are_understood(text: str, expected: OffsetRange) -> None:
    assert parse_offset_range(text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x",
        "5-7",
        "--5",
        "+",
        "-",
        "5:x",
        "@",
        "@x",
        "@-1y",
        "@12345",
        "@-1h:x",
        "٣",
        "9" * 20,
    ],
)
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_offset_range(text, NOW_MS)


@pytest.mark.parametrize("text", ["9:3", "@-1h:-2h"])
def test_a_range_that_ends_before_it_starts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        parse_offset_range(text, NOW_MS)


@given(st.text(max_size=40))
def test_no_text_does_more_than_raise_value_error(text: str) -> None:
    try:
        parse_offset_range(text, NOW_MS)
    except ValueError:
        return


def test_a_single_place_is_not_a_range() -> None:
    assert parse_bound("-10", NOW_MS) == Bound(Anchor.FROM_END, 10)
    with pytest.raises(ValueError, match="is a range"):
        parse_bound("1:2", NOW_MS)


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (START, 10),
        (END, 20),
        (Bound(Anchor.FROM_START, 3), 13),
        (Bound(Anchor.FROM_START, 30), 20),
        (Bound(Anchor.FROM_END, 3), 17),
        (Bound(Anchor.FROM_END, 30), 10),
        (offset(15), 15),
        (offset(5), 10),
        (offset(50), 20),
    ],
)
def test_a_bound_stays_inside_the_log(bound: Bound, expected: int) -> None:
    assert bound.resolve(10, 20) == expected


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert time(NOW_MS).resolve(10, 20, -1) == 20
    assert time(NOW_MS).resolve(10, 20, 12) == 12


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 250), ("10s", 10_000), ("1h30m", 5_400_000), ("1.5s", 1500)]
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "10", "s", "1h x", "1 h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)
