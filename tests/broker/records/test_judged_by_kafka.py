"""Apache Kafka's own record classes read what we write, codec by codec.

Its dump-log tool walks a segment made of our batches: it checks each CRC, decompresses, and prints
every record with key, value and headers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.model.transaction_marker import TransactionMarker
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.control import build_marker
from broker.records.header import peek_header, stamp
from broker.records.record import Record
from broker.records.validation import ProduceRules, check_header, walk
from tests.support import apache

pytestmark = pytest.mark.conformance

NOW = 1_800_000_000_000
TEXT = "line of a text that repeats itself, "
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: -?\d+ headerKeys: \[(?P<headers>[^]]*)\]"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$"
)


def some_records(base_offset: int, count: int) -> list[Record]:
    return [
        Record(base_offset + i, NOW + i % 7, b"key-%d" % i, (TEXT * (i % 90) + str(i)).encode(),
               [("name", b"x"), ("null", None)] if i % 3 == 0 else [])
        for i in range(count)
    ]  # fmt: skip


def converted(batch: bytearray, codec: Codec, level: int | None) -> bytearray:
    rules = ProduceRules(codec=codec, codec_level=level, strict=True)
    header = check_header(memoryview(batch), rules, NOW, 13)
    rewritten = walk(memoryview(batch), header, rules, NOW)
    return batch if rewritten is None else rewritten


def our_batches() -> list[tuple[bytearray, list[Record]]]:
    """Built in every codec, converted from every codec to every other, stamped, marked."""
    made: list[tuple[bytearray, list[Record]]] = []
    levels = {Codec.GZIP: (-1, 1, 9), Codec.LZ4: (9, 1, 17), Codec.ZSTD: (3, -131072, 22)}
    for source in Codec:
        made.append((build_batch(some_records(0, 200), codec=source), some_records(0, 200)))
        for target in Codec:
            for level in levels.get(target, (None,)):
                records = some_records(0, 60)
                made.append((converted(build_batch(records, codec=source), target, level), records))
    append_time = build_batch(some_records(0, 5), codec=Codec.LZ4)
    rules = ProduceRules(log_append_time=True)
    check_header(memoryview(append_time), rules, NOW + 99, 13)
    made.append((append_time, [one._replace(timestamp=NOW + 99) for one in some_records(0, 5)]))
    nulls = [Record(0, NOW, None, None), Record(1, NOW, b"", b""), Record(2, -1, b"k", None)]
    made.append((build_batch(nulls, codec=Codec.SNAPPY), nulls))
    for is_commit in (True, False):
        made.append((build_marker(TransactionMarker(9, 1, is_commit, 3), NOW), []))
    made.append((build_batch([], base_offset=0, last_offset=4), []))
    return made


def test_kafka_reads_all_that_we_write(tmp_path: Path) -> None:
    segment = tmp_path / f"{0:020d}.log"
    expected: list[Record] = []
    next_offset = 0
    with segment.open("wb") as file:
        for batch, records in our_batches():
            stamp(batch, 0, next_offset, 5)
            expected += [one._replace(offset=one.offset + next_offset) for one in records]
            next_offset = peek_header(batch).next_offset
            file.write(batch)
    run = apache.run_tool(
        "DumpLogSegments",
        ["--files", segment, "--deep-iteration", "--print-data-log"],
    ).ok()
    batches = [line for line in run.lines if line.startswith("baseOffset: ")]
    assert len(batches) == len(our_batches())
    assert all("isvalid: true" in line for line in batches)
    assert sum("endTxnMarker: " in line for line in run.lines) == 2
    found = []
    for line in run.lines:
        match = RECORD.match(line)
        if match is None or "endTxnMarker: " in line:
            continue
        found.append(
            Record(
                int(match["offset"]),
                int(match["timestamp"]),
                None if match["key_size"] == "-1" else (match["key"] or "").encode(),
                None if match["value_size"] == "-1" else (match["value"] or "").encode(),
                match["headers"].split(",") if match["headers"] else [],
            )
        )
    assert found == [one._replace(headers=[name for name, _ in one.headers]) for one in expected]
