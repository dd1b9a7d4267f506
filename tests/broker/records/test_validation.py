"""Produce validation: what the verdict cases (test_verdicts) do not show."""

from __future__ import annotations

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.topic_config import resolve_topic_config
from broker.model.error_code import ErrorCode
from broker.records.batch import iter_records
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.header import BatchHeader, compute_crc, peek_header
from broker.records.produce_rules import NO_RECORD_LIMIT
from broker.records.record import Record
from broker.records.validation import (
    MAX_RECORD_ERRORS,
    InvalidBatch,
    ProduceRules,
    check_header,
    needs_walk,
    walk,
    walks_in_thread,
)

NOW = 1_800_000_000_000
PLAIN = ProduceRules()


def batch_of(count: int = 3, **kwargs: object) -> bytearray:
    return build_batch([Record(i, NOW + i, b"k%d" % i, b"v" * 50) for i in range(count)], **kwargs)


def check(batch: bytearray, rules: ProduceRules = PLAIN, version: int = 13) -> BatchHeader:
    return check_header(memoryview(batch), rules, NOW, version)


def walked(batch: bytearray, rules: ProduceRules) -> bytearray:
    header = check(batch, rules)
    assert needs_walk(header, rules, NOW)
    rewritten = walk(memoryview(batch), header, rules, NOW)
    return batch if rewritten is None else rewritten


@pytest.mark.parametrize("codec", Codec)
def test_plain_batch_passes_untouched(codec: Codec) -> None:
    batch = batch_of(codec=codec)
    before = bytes(batch)
    header = check(batch)
    assert header == peek_header(before)
    assert not needs_walk(header, PLAIN, NOW)
    assert batch == before


def test_bytes_are_checked_without_taking_them_over() -> None:
    """The frame is a view into a receive buffer: nothing may keep it alive."""
    frame = bytearray(b"head") + batch_of()
    view = memoryview(frame)[4:]
    check_header(view, PLAIN, NOW, 13)
    view.release()
    frame.extend(b"no BufferError: no view is left")


def test_append_time_stamps_header_and_crc() -> None:
    rules = ProduceRules(log_append_time=True)
    batch = build_batch([Record(0, -1, b"k", b"v"), Record(1, 5, b"k", b"v")], codec=Codec.ZSTD)
    header = check(batch, rules)
    assert header == peek_header(batch)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW)
    assert header.crc == compute_crc(batch, 0, len(batch))
    assert not needs_walk(header, rules, NOW)
    assert {record.timestamp for record in iter_records(batch, 1000)} == {NOW}


def test_append_time_and_compaction_and_conversion_together() -> None:
    rules = ProduceRules(log_append_time=True, is_compacted=True, codec=Codec.LZ4)
    converted = walked(batch_of(codec=Codec.GZIP), rules)
    header = peek_header(converted)
    assert (header.codec, header.is_log_append_time, header.max_timestamp) == (Codec.LZ4, True, NOW)
    assert header.crc == compute_crc(converted, 0, len(converted))


def test_missing_max_timestamp_is_put_right_in_place() -> None:
    batch = batch_of()
    right = bytes(batch)
    batch[35:43] = b"\xff" * 8
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    assert walked(batch, PLAIN) is batch
    assert batch == right


def test_conversion_keeps_everything_but_the_codec() -> None:
    original = batch_of(
        100, codec=Codec.SNAPPY, producer_id=7, producer_epoch=1, base_sequence=9,
        is_transactional=True,
    )  # fmt: skip
    before = bytes(original)
    converted = walked(original, ProduceRules(codec=Codec.ZSTD))
    assert original == before
    theirs, ours = peek_header(before), peek_header(converted)
    assert ours._replace(batch_length=0, crc=0, attributes=0) == theirs._replace(
        batch_length=0, crc=0, attributes=0
    )
    assert (ours.codec, ours.is_transactional) == (Codec.ZSTD, True)
    assert ours.size_in_bytes == len(converted)
    assert list(iter_records(converted, 1 << 20)) == list(iter_records(before, 1 << 20))


def test_bomb_is_refused_with_the_code_that_splits_batches() -> None:
    bomb = build_batch([Record(0, NOW, b"k", bytes(9_000_000))], codec=Codec.ZSTD)
    rules = ProduceRules(strict=True, max_decompressed_bytes=1_000_000)
    with pytest.raises(InvalidBatch) as caught:
        walked(bomb, rules)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_answers_name_a_bounded_number_of_records() -> None:
    count = MAX_RECORD_ERRORS + 500
    batch = build_batch([Record(i, NOW, None, b"v") for i in range(count)])
    with pytest.raises(InvalidBatch, match=f"{count} record errors") as caught:
        walked(batch, ProduceRules(is_compacted=True))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == list(range(MAX_RECORD_ERRORS))


def test_only_small_batches_in_plain_are_walked_on_the_loop() -> None:
    assert not walks_in_thread(peek_header(batch_of(100)))
    assert walks_in_thread(peek_header(batch_of(1_000)))
    assert walks_in_thread(peek_header(batch_of(3, codec=Codec.ZSTD)))


def test_rules_come_from_the_topics_configuration() -> None:
    def rules(**overrides: str) -> ProduceRules:
        dotted = {key.replace("_", "."): value for key, value in overrides.items()}
        return ProduceRules.for_topic(
            resolve_topic_config(dotted, resolve_broker_config({}, {}, {}))
        )

    default = rules()
    assert default.codec is None
    assert default.max_message_bytes == 1_048_588
    assert (default.before_max_ms, default.after_max_ms) == (2**63 - 1, 3_600_000)
    assert not default.strict
    assert default.max_record_bytes == NO_RECORD_LIMIT
    assert default.max_decompressed_bytes == 64 * 1024 * 1024
    changed = rules(
        compression_type="zstd",
        compression_zstd_level="7",
        cleanup_policy="compact,delete",
        message_timestamp_type="LogAppendTime",
        max_message_bytes="20000000",
        odradek_produce_validation="strict",
    )
    assert (changed.codec, changed.codec_level) == (Codec.ZSTD, 7)
    assert changed.is_compacted
    assert changed.log_append_time
    assert changed.strict
    assert changed.max_decompressed_bytes == 160_000_000
    assert rules(compression_type="uncompressed").codec is Codec.NONE


def test_limits_are_inclusive() -> None:
    rules = ProduceRules(before_max_ms=1_000, after_max_ms=500)
    for delta, is_legal in ((-1_000, True), (-1_001, False), (500, True), (501, False)):
        batch = build_batch([Record(0, NOW + delta, b"k", b"v")])
        header = check(batch, rules)
        assert needs_walk(header, rules, NOW) is not is_legal
        if is_legal:
            assert walk(memoryview(batch), header, rules, NOW) is None
        else:
            with pytest.raises(InvalidBatch) as caught:
                walk(memoryview(batch), header, rules, NOW)
            assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
            assert [index for index, _ in caught.value.record_errors] == [0]
