"""Our verdicts on produced batches beside those that Apache Kafka 4.4 gave on the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.topic_config import resolve_topic_config
from broker.model.error_code import ErrorCode
from broker.records import validation
from broker.records.header import peek_header
from broker.records.validation import InvalidBatch, ProduceRules
from tests.golden.produce_cases import CASES, TOPICS, Case
from tests.support import record_batches

VERDICTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "produce_verdicts.json").read_text()
)
NOW = 1_800_000_000_000

UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
INVALID = ErrorCode.INVALID_RECORD
INVALID_TIME = ErrorCode.INVALID_TIMESTAMP
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

#: What every mode answers otherwise than Kafka, and why.
DIFFERENT: dict[str, tuple[ErrorCode, str]] = {
    "null-records": (INVALID, "Kafka does not answer at all"),
    "length-max": (INVALID, "Kafka trips over its own arithmetic"),
    "codec-5": (UNSUPPORTED, "Kafka does not expect it: a named error for UNKNOWN_SERVER_ERROR"),
    "codec-6": (UNSUPPORTED, "as codec-5"),
    "codec-7": (UNSUPPORTED, "as codec-5"),
    "codec-5-v6": (UNSUPPORTED, "as codec-5"),
    "lz4-linked-blocks": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "lz4-garbage": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "lz4-empty": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "one-byte-behind": (INVALID, "the batch must fill the frame: Kafka cuts the rest off"),
    "eleven-bytes-behind": (INVALID, "as one-byte-behind"),
    "second-batch-cut-short": (INVALID, "as one-byte-behind"),
    "timestamp-minus-five": (INVALID_TIME, "no time before 1970 but -1 for none"),
    "timestamp-minus-five-gzip": (INVALID_TIME, "as timestamp-minus-five"),
    "all-timestamps-negative": (INVALID_TIME, "as timestamp-minus-five"),
}

#: What strict mode and compacted topics answer otherwise than Kafka.
DIFFERENT_WHEN_WALKED: dict[str, tuple[ErrorCode, str]] = {
    "timestamp-minus-five-second": (INVALID_TIME, "as timestamp-minus-five"),
    "offsets-from-5-none": (INVALID, "Kafka stores offsets that collide with other records'"),
    "offsets-swapped-none": (INVALID, "as offsets-from-5-none"),
    "offsets-all-zero-none": (INVALID, "as offsets-from-5-none"),
    "offset-negative-none": (INVALID, "as offsets-from-5-none"),
    "record-of-offset-1-on-compacted-none": (INVALID, "as offsets-from-5-none"),
    "converts-offsets": (INVALID, "Kafka numbers them anew; no client sends such a batch"),
    "offsets-from-5-gzip": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "offsets-swapped-gzip": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "offsets-all-zero-gzip": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "offset-negative-gzip": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "record-of-offset-1-on-compacted-gzip": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "record-length-too-large-gzip": (INVALID, "Kafka skips this check in compressed batches"),
    "record-longer-than-length-gzip": (INVALID, "as record-length-too-large-gzip"),
    "record-length-six-bytes-none": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "gzip-bytes-behind": (INVALID, "Kafka does not read what lies behind the stream"),
    "lz4-bytes-behind": (INVALID, "as gzip-bytes-behind"),
    **{
        f"{codec}-{fault}": (INVALID, "a named error for UNKNOWN_SERVER_ERROR")
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for fault in ("garbage", "empty", "cut")
    },
    "snappy-bytes-behind": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
    "zstd-bytes-behind": (INVALID, "a named error for UNKNOWN_SERVER_ERROR"),
}

#: Faults behind the header, in batches that relaxed mode does not open.
NOT_SEEN_BY_RELAXED_MODE = {
    "behind-limit-not-first",
    "delta-overflow",
    "converts-garbage",
    "count-and-delta-one-too-high",
    "count-and-delta-one-too-low",
    "count-huge",
    *DIFFERENT_WHEN_WALKED,
    *(
        f"{fault}-{codec}"
        for codec in ("none", "gzip")
        for fault in (
            "record-length-negative",
            "record-length-zero",
            "record-length-too-large",
            "record-length-huge",
            "record-length-six-bytes",
            "record-shorter-than-length",
            "record-longer-than-length",
            "key-beyond-record",
            "value-beyond-record",
            "header-count-negative",
            "header-count-huge",
            "header-name-null",
            "header-name-beyond",
            "header-value-beyond",
            "varlong-eleven-bytes",
            "bytes-behind-records",
            "records-missing",
            "records-left",
            "no-records",
        )
    ),
}

#: Kafka names the records as well; we answer from the header.
WITHOUT_RECORD_ERRORS = {"append-time-flag-on-append-time-topic"}


def rules_of(topic: str, *, strict: bool) -> ProduceRules:
    overrides = dict(TOPICS[topic])
    overrides["odradek.produce.validation"] = "strict" if strict else "relaxed"
    return ProduceRules.for_topic(
        resolve_topic_config(overrides, resolve_broker_config({}, {}, {}))
    )


def judge(case: Case, *, strict: bool) -> dict[str, Any]:
    """What the leader does with the batch, in the form of produce_verdicts.json."""
    rules = rules_of(case.topic, strict=strict)
    buf = memoryview(bytearray(case.make(NOW) or b""))
    try:
        header = validation.check_header(buf, rules, NOW, case.version)
        rewritten = None
        if validation.needs_walk(header, rules, NOW):
            rewritten = validation.walk(buf, header, rules, NOW)
    except InvalidBatch as error:
        return {"error_code": int(error.code), "record_errors": error.record_errors}
    stored = bytes(buf if rewritten is None else rewritten)
    if rewritten is None:
        assert header.size_in_bytes == len(buf)
    (batch,) = record_batches.batches(stored)
    assert batch.is_crc_right
    return {"error_code": 0, "stored": stored}


def is_walked(case: Case, *, strict: bool) -> bool:
    rules = rules_of(case.topic, strict=strict)
    buf = memoryview(bytearray(case.make(NOW) or b""))
    try:
        header = validation.check_header(buf, rules, NOW, case.version)
    except InvalidBatch:
        return False
    return validation._must_open(header, rules, NOW)


def summary(stored: bytes) -> dict[str, Any]:
    (batch,) = record_batches.batches(stored)
    is_append_time = bool(batch.attributes & record_batches.LOG_APPEND_TIME)

    def since_now(timestamp: int) -> int | None:
        return None if is_append_time else (timestamp if timestamp < 1_000 else timestamp - NOW)

    try:
        records: Any = [[one.offset, since_now(one.timestamp)] for one in batch.records()]
    except Exception as error:
        records = [f"unreadable: {type(error).__name__}"]
    return {
        "attributes": batch.attributes,
        "last_offset_delta": batch.last_offset_delta,
        "record_count": batch.record_count,
        "max_timestamp": since_now(batch.max_timestamp),
        "producer": [batch.producer_id, batch.producer_epoch, batch.base_sequence],
        "is_crc_right": batch.is_crc_right,
        "records": records if len(records) <= 10 else len(records),
    }


def expected(case: Case, *, walked: bool) -> int:
    differences = {**DIFFERENT, **(DIFFERENT_WHEN_WALKED if walked else {})}
    if case.name in differences:
        return int(differences[case.name][0])
    return int(VERDICTS[case.name]["error_code"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_strict_mode_decides_as_kafka_does(case: Case) -> None:
    verdict = VERDICTS[case.name]
    ours = judge(case, strict=True)
    assert ours["error_code"] == expected(case, walked=True)
    if ours["error_code"] != verdict.get("error_code"):
        return
    if ours["error_code"] == 0:
        assert summary(ours["stored"]) == verdict["stored"]
    elif case.name not in WITHOUT_RECORD_ERRORS:
        indexes = [index for index, _ in ours["record_errors"]]
        assert indexes == [index for index, _ in verdict["record_errors"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relaxed_mode_differs_only_in_what_it_does_not_open(case: Case) -> None:
    walked = is_walked(case, strict=False)
    ours = judge(case, strict=False)
    if walked or ours["error_code"] != 0:
        assert ours["error_code"] == expected(case, walked=walked)
        return
    if expected(case, walked=False) != 0:
        assert case.name in NOT_SEEN_BY_RELAXED_MODE
        return
    theirs = dict(VERDICTS[case.name]["stored"])
    stored = summary(ours["stored"])
    if case.name in ("max-timestamp-too-low", "max-timestamp-too-high"):
        theirs["max_timestamp"] = stored["max_timestamp"]
    if case.name == "converts-offsets":
        theirs["records"] = [[3, 0], [1, 0]]
    assert stored == theirs


def test_every_case_has_a_verdict_and_every_difference_a_case() -> None:
    names = {case.name for case in CASES}
    assert set(VERDICTS) == names
    assert set(DIFFERENT) | set(DIFFERENT_WHEN_WALKED) | WITHOUT_RECORD_ERRORS <= names
    for name in DIFFERENT:
        assert int(DIFFERENT[name][0]) != VERDICTS[name].get("error_code")


def test_what_passes_keeps_its_bytes() -> None:
    (case,) = [case for case in CASES if case.name == "zstd-good"]
    assert judge(case, strict=True)["stored"] == case.make(NOW)
    assert peek_header(case.make(NOW) or b"").codec == 4
