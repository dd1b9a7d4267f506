"""Transaction markers."""

from __future__ import annotations

import struct

import pytest

from broker.model.transaction_marker import TransactionMarker
from broker.records.builder import build_batch
from broker.records.control import build_marker, parse_marker
from broker.records.header import MalformedBatch, peek_header
from broker.records.record import Record
from tests.broker.records.test_batch import golden


@pytest.mark.parametrize(("name", "is_commit"), [("commit", True), ("abort", False)])
def test_markers_equal_kafkas(name: str, is_commit: bool) -> None:
    theirs = golden(f"java-{name}-marker")
    marker = TransactionMarker(4711, 3, is_commit, 42)
    assert parse_marker(theirs) == marker
    base_offset = peek_header(theirs).base_offset
    ours = build_marker(marker, 1_700_000_000_000, base_offset=base_offset, leader_epoch=9)
    assert ours == theirs


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([Record(0, 0, key, value)], is_control=True, is_transactional=True)


def test_other_control_records_are_no_markers() -> None:
    assert parse_marker(control_batch(struct.pack(">hh", 0, 2), b"")) is None


def test_later_versions_may_have_more_fields() -> None:
    batch = control_batch(struct.pack(">hhi", 1, 1, 0), struct.pack(">hiq", 1, 5, 6))
    assert parse_marker(batch) == TransactionMarker(-1, -1, True, 5)


def test_marker_that_was_compacted_away_is_none() -> None:
    batch = build_batch([], base_offset=5, last_offset=5, is_control=True)
    assert parse_marker(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        control_batch(None, b""),
        control_batch(b"\0\0\0", b""),
        control_batch(struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 0)),
        control_batch(struct.pack(">hh", 0, 1), None),
        control_batch(struct.pack(">hh", 0, 1), b"\0\0\0\0\0"),
        control_batch(struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 0)),
        build_batch([Record(0, 0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0))]),
        b"",
    ],
)
def test_damaged_markers_are_refused(batch: bytes) -> None:
    with pytest.raises(MalformedBatch):
        parse_marker(batch)
