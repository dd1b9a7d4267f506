import pytest

from appliance.reading import (
    GroupProgress,
    LogState,
    ReadProgress,
    RecordFilter,
    Span,
    resolve_span,
)
from broker.model.ids import TopicPartition
from dashboard.cluster import Record
from dashboard.offset_range import parse_offset_range

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
LOG = LogState(log_start=10, log_end=20)


def record(offset: int, key: TopicPartition = KEY, value: bytes = b"v") -> Record:
    return Record(key.topic, key.partition, offset, 1, 0, b"k", value, [])


@pytest.mark.parametrize(
    ("text", "stops_at_end", "start", "end"),
    [
        ("start", False, 10, None),
        ("start", True, 10, 20),
        (":end", False, 10, 20),
        ("end", True, 20, 20),
        ("12:15", False, 12, 15),
        ("0:15", False, 10, 15),
        ("12:99", False, 12, 20),
        ("30:40", False, 20, 20),
        ("0:5", False, 10, 10),
        ("-3", True, 17, 20),
    ],
)
def test_ends_are_frozen_inside_the_log(
    text: str, stops_at_end: bool, start: int, end: int | None
) -> None:
    wanted = parse_offset_range(text, 0)
    span, _ = resolve_span(KEY, wanted, LOG, stops_at_end=stops_at_end)
    assert (span.start, span.end) == (start, end)


def test_an_offset_outside_the_log_is_remarked_upon() -> None:
    _, gone = resolve_span(KEY, parse_offset_range("3", 0), LOG, stops_at_end=False)
    assert gone is not None
    assert "the log starts at 10" in gone
    _, ahead = resolve_span(KEY, parse_offset_range("33", 0), LOG, stops_at_end=False)
    assert ahead is not None
    assert "the log ends at 20" in ahead


def test_records_before_an_offset_to_come_are_not_shown() -> None:
    span, _ = resolve_span(KEY, parse_offset_range("22", 0), LOG, stops_at_end=False)
    progress = ReadProgress([span])
    assert [progress.on_record(record(offset)) for offset in (20, 21, 22)] == [False, False, True]


def test_reading_ends_with_the_record_before_the_end() -> None:
    progress = ReadProgress([Span(KEY, 10, 12)])
    assert progress.on_record(record(10))
    assert not progress.is_done
    assert progress.on_record(record(11))
    assert progress.is_done
    assert progress.take_closed() == [KEY]
    assert progress.take_closed() == []


def test_a_record_beyond_the_end_ends_reading_and_is_not_shown() -> None:
    progress = ReadProgress([Span(KEY, 10, 12)])
    assert not progress.on_record(record(15))
    assert progress.is_done


def test_a_marker_at_the_end_is_seen_through_the_partition_end() -> None:
    progress = ReadProgress([Span(KEY, 10, 12)])
    progress.on_record(record(10))
    progress.on_partition_end(KEY)
    assert progress.is_done


def test_empty_spans_are_done_and_not_fetched() -> None:
    progress = ReadProgress([Span(KEY, 5, 5), Span(OTHER, 0, 2)])
    assert progress.starts() == {OTHER: 0}
    progress.on_record(record(1, OTHER))
    assert progress.is_done


def test_without_an_end_reading_goes_on() -> None:
    progress = ReadProgress([Span(KEY, 0, None)])
    progress.on_partition_end(KEY)
    assert progress.on_record(record(7))
    assert not progress.is_done
    assert progress.fraction() is None


def test_the_fraction_follows_offsets() -> None:
    progress = ReadProgress([Span(KEY, 0, 10), Span(OTHER, 0, 10)])
    progress.on_record(record(4))
    assert progress.fraction() == 0.25
    progress.on_partition_end(OTHER)
    assert progress.fraction() == 0.75


def test_a_group_reads_to_the_ends_of_what_it_was_given() -> None:
    progress = GroupProgress(stops_at_end=True)
    assert not progress.is_done
    progress.on_assigned({KEY: 12, OTHER: 5})
    progress.on_partition_end(OTHER)
    assert progress.take_closed() == [OTHER]
    assert progress.on_record(record(11))
    assert progress.is_done
    # What came after the ends were taken belongs to the next reading.
    assert not progress.on_record(record(12))


def test_partitions_that_are_taken_away_hold_up_nobody() -> None:
    progress = GroupProgress(stops_at_end=True)
    progress.on_assigned({KEY: 12, OTHER: 5})
    progress.on_revoked([KEY])
    assert not progress.on_record(record(3))
    progress.on_partition_end(OTHER)
    assert progress.is_done


def test_a_group_without_an_end_reads_on() -> None:
    progress = GroupProgress(stops_at_end=False)
    progress.on_assigned({KEY: 1})
    progress.on_partition_end(KEY)
    assert progress.on_record(record(7))
    assert not progress.is_done
    assert progress.take_closed() == []
    assert progress.fraction() is None


def test_filters_are_literal() -> None:
    assert RecordFilter(key=b"k").matches(record(0))
    assert not RecordFilter(key=b"k1").matches(record(0))
    assert RecordFilter(contains=(b"(a+)+$",)).matches(record(0, value=b"x(a+)+$"))
    assert not RecordFilter(contains=(b"a", b"b")).matches(record(0, value=b"a"))
    assert not RecordFilter(contains=(b"a",)).matches(Record("t", 0, 0, 1, 0, None, None, []))
