"""Batches, good and bad, whose fate in Apache Kafka is on record in produce_verdicts.json.

Each case makes its bytes from `now` (the clock of the run), so that limits on timestamps mean the
same thing whenever it is sent. `python -m tests.golden.produce_verdicts` asks a real broker.
"""

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass

import cramjam

from tests.support import record_batches as plain
from tests.support.record_batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch, varint

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "limits": {
        "message.timestamp.before.max.ms": "1000000",
        "message.timestamp.after.max.ms": "1000000",
    },
    "small": {"max.message.bytes": "1000"},
    "small-record": {"max.decompressed.message.bytes": "1000"},
    "to-gzip": {"compression.type": "gzip"},
    "to-snappy": {"compression.type": "snappy"},
    "to-lz4": {"compression.type": "lz4"},
    "to-zstd": {"compression.type": "zstd"},
    "to-none": {"compression.type": "uncompressed"},
    "to-none-small": {"compression.type": "uncompressed", "max.message.bytes": "1000"},
    "to-zstd-append-time": {
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
    },
    "compacted-to-lz4": {"cleanup.policy": "compact", "compression.type": "lz4"},
}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    make: Callable[[int], bytes | None]
    topic: str = "plain"
    version: int = 8


def three(now: int, **kwargs: int | bytes) -> bytes:
    """Three keyed records, one of them with headers, 10 ms apart."""
    return batch(three_records(now), **kwargs)


def three_records(now: int) -> list[Record]:
    return [
        Record(b"k0", b"v0", now),
        Record(b"k1", None, now + 10, (("h", b"x"), ("n", None))),
        Record(b"k2", b"", now + 20),
    ]


def keyless(now: int, **kwargs: int) -> bytes:
    return batch(
        [Record(b"k", b"v", now), Record(None, b"v", now), Record(b"", b"v", now),
         Record(None, None, now)],
        **kwargs,
    )  # fmt: skip


def at(now: int, *deltas: int, **kwargs: int) -> bytes:
    """Records with these distances to now."""
    return batch([Record(b"k", b"v", now + delta) for delta in deltas], **kwargs)


def absolute(*timestamps: int, **kwargs: int) -> bytes:
    return batch([Record(b"k", b"v", timestamp) for timestamp in timestamps], **kwargs)


def of_bodies(now: int, *bodies: bytes, codec: int = NONE, count: int | None = None) -> bytes:
    """Records given by their bodies (what follows the length), right or wrong."""
    return of_payload(now, b"".join(varint(len(body)) + body for body in bodies),
                      len(bodies) if count is None else count, codec)  # fmt: skip


def of_payload(now: int, payload: bytes, count: int, codec: int = NONE) -> bytes:
    return of_compressed(now, plain.compress(codec, payload) if codec else payload, count, codec)


def of_compressed(now: int, payload: bytes, count: int, codec: int) -> bytes:
    return batch(
        [], codec=codec, payload=payload, timestamp=now, max_timestamp=now, record_count=count,
        last_offset_delta=count - 1,
    )  # fmt: skip


def body(
    *,
    attributes: int = 0,
    timestamp: int = 0,
    offset: int = 0,
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
) -> bytes:
    return bytes([attributes]) + varint(timestamp) + varint(offset) + key + value + headers


def encoded(now: int, count: int = 3) -> bytes:
    return plain.encode_records([Record(b"k", b"value", now)] * count, now)


def linked_lz4(data: bytes) -> bytes:
    """Blocks that refer to earlier ones, as lz4 libraries write by default."""
    compressor = cramjam.lz4.Compressor(level=0, content_checksum=True, block_linked=True)
    compressor.compress(data)
    return bytes(compressor.finish())


def lz4_with_checksum(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=0, content_checksum=True, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def xerial(data: bytes, versions: bytes, block: int) -> bytes:
    out = b"\x82SNAPPY\x00" + versions
    for start in range(0, len(data), block):
        raw = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        out += struct.pack(">i", len(raw)) + raw
    return out


def long_records(now: int) -> bytes:
    return plain.encode_records([Record(b"k%d" % i, b"value " * 500, now) for i in range(100)], now)


_CODECS = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}


def _well_formed() -> list[Case]:
    cases = [
        Case(f"{name}-good", lambda now, codec=codec: three(now, codec=codec))
        for codec, name in _CODECS.items()
    ]
    versions = b"\0\0\0\1\0\0\0\1"
    cases += [
        Case("snappy-raw", lambda now: batch(three_records(now), codec=SNAPPY, xerial=False)),
        Case(
            "snappy-xerial-many-blocks",
            lambda now: of_compressed(now, xerial(long_records(now), versions, 32768), 100, SNAPPY),
        ),
        Case(
            "snappy-xerial-little-endian-version",
            lambda now: of_compressed(
                now, xerial(encoded(now), b"\1\0\0\0\1\0\0\0", 32768), 3, SNAPPY
            ),
        ),
        Case(
            "snappy-xerial-twice",
            lambda now: of_compressed(
                now,
                xerial(encoded(now)[:20], versions, 32768)
                + xerial(encoded(now)[20:], versions, 32768),
                3,
                SNAPPY,
            ),
        ),
        Case(
            "gzip-two-members",
            lambda now: of_compressed(
                now, gzip.compress(encoded(now)[:20]) + gzip.compress(encoded(now)[20:]), 3, GZIP
            ),
        ),
        Case(
            "zstd-two-frames",
            lambda now: of_compressed(
                now,
                bytes(cramjam.zstd.compress(encoded(now)[:20]))
                + bytes(cramjam.zstd.compress(encoded(now)[20:])),
                3,
                ZSTD,
            ),
        ),
        Case(
            "lz4-linked-blocks",
            lambda now: of_compressed(now, linked_lz4(long_records(now)), 100, LZ4),
        ),
        Case(
            "lz4-content-checksum",
            lambda now: of_compressed(now, lz4_with_checksum(long_records(now)), 100, LZ4),
        ),
        Case("zstd-produce-v6", lambda now: three(now, codec=ZSTD), version=6),
        Case("zstd-produce-v7", lambda now: three(now, codec=ZSTD), version=7),
        Case("one-empty-record", lambda now: batch([Record(None, None, now)])),
        Case("last-record-empty", lambda now: batch([b"a", b""], timestamp=now)),
        Case(
            "header-name-not-utf8",
            lambda now: of_bodies(now, body(headers=b"\x02\x04\xff\xfe\x02x")),
        ),
        Case(
            "producer-id",
            lambda now: three(now, producer_id=77, producer_epoch=0, base_sequence=0),
        ),
    ]
    return cases


def _header_faults() -> list[Case]:
    def tail(extra: bytes) -> Callable[[int], bytes]:
        return lambda now: three(now) + extra

    simple: dict[str, dict[str, int]] = {
        "crc-wrong": {"crc": 1},
        "count-one-too-high": {"record_count": 4},
        "count-one-too-low": {"record_count": 2},
        "count-and-delta-one-too-high": {"record_count": 4, "last_offset_delta": 3},
        "count-and-delta-one-too-low": {"record_count": 2, "last_offset_delta": 1},
        "last-offset-delta-5-of-3": {"last_offset_delta": 5},
        "count-zero": {"record_count": 0},
        "count-zero-and-delta": {"record_count": 0, "last_offset_delta": -1},
        "count-negative": {"record_count": -3, "last_offset_delta": -4},
        "count-min": {"record_count": -(2**31), "last_offset_delta": 2**31 - 1},
        "count-huge": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        "base-offset-777": {"base_offset": 777},
        "base-offset-negative": {"base_offset": -1},
        "leader-epoch-given": {"partition_leader_epoch": 12345},
        "magic-0": {"magic": 0},
        "magic-1": {"magic": 1},
        "magic-3": {"magic": 3},
        "magic-negative": {"magic": -1},
        "length-too-large": {"batch_length": 10_000},
        "length-49": {"batch_length": 49},
        "length-48": {"batch_length": 48},
        "length-14": {"batch_length": 14},
        "length-13": {"batch_length": 13},
        "length-zero": {"batch_length": 0},
        "length-negative": {"batch_length": -1},
        "length-max": {"batch_length": 2**31 - 1},
        "control": {"attributes": plain.CONTROL},
        "control-and-inconsistent-count": {"attributes": plain.CONTROL, "record_count": 4},
        "append-time-flag": {"attributes": plain.LOG_APPEND_TIME},
        "delete-horizon-flag": {"attributes": plain.DELETE_HORIZON},
        "attribute-bit-7": {"attributes": 0x80},
        "attribute-bit-8": {"attributes": 0x100},
        "attribute-bit-15": {"attributes": -0x8000},
        "codec-5": {"attributes": 5},
        "codec-6": {"attributes": 6},
        "codec-7": {"attributes": 7},
        "producer-id-without-sequence": {"producer_id": 5, "producer_epoch": 0},
        "producer-id-negative-sequence": {
            "producer_id": 5, "producer_epoch": 0, "base_sequence": -2,
        },
        "producer-id-without-epoch": {"producer_id": 78, "producer_epoch": -1, "base_sequence": 0},
        "sequence-without-producer-id": {"base_sequence": 5},
        "producer-id-below-minus-one": {"producer_id": -5, "base_sequence": -1},
        "crc-wrong-and-base-offset": {"crc": 1, "base_offset": 5},
        "crc-wrong-and-count": {"crc": 1, "record_count": 4},
        "crc-wrong-and-codec-5": {"crc": 1, "attributes": 5},
    }  # fmt: skip
    cases = [
        Case(name, lambda now, fields=fields: three(now, **fields))
        for name, fields in simple.items()
    ]
    cases += [
        Case("null-records", lambda now: None),
        Case("empty-records", lambda now: b""),
        Case("eleven-bytes", lambda now: three(now)[:11]),
        Case("sixteen-bytes", lambda now: three(now)[:16]),
        Case("sixty-bytes", lambda now: three(now)[:60]),
        Case("header-alone", lambda now: three(now)[:61]),
        Case("cut-short", lambda now: three(now)[:-1]),
        Case("two-batches", lambda now: three(now) + three(now)),
        Case("two-batches-second-magic-3", lambda now: three(now) + three(now, magic=3)),
        Case("second-batch-cut-short", lambda now: three(now) + three(now)[:-1]),
        Case("one-byte-behind", tail(b"x")),
        Case("eleven-bytes-behind", tail(b"x" * 11)),
        Case("sixteen-zeros-behind", tail(bytes(16))),
        Case("eighty-zeros-behind", tail(bytes(80))),
        Case("crc-wrong-compacted", lambda now: three(now, crc=1), "compacted"),
        Case("crc-wrong-zstd-v6", lambda now: three(now, crc=1, codec=ZSTD), version=6),
        Case("codec-5-v6", lambda now: three(now, attributes=5), version=6),
        Case(
            "append-time-flag-on-append-time-topic",
            lambda now: three(now, attributes=plain.LOG_APPEND_TIME),
            "append-time",
        ),
        Case("base-offset-777-compacted", lambda now: three(now, base_offset=777), "compacted"),
    ]
    return cases


def _sizes() -> list[Case]:
    def of_size(now: int, size: int, **kwargs: int) -> bytes:
        made = batch([Record(b"k", b"", now)])
        for filler in range(size - len(made) - 4, size):
            made = batch([Record(b"k", b"x" * max(filler, 0), now)], **kwargs)
            if len(made) == size:
                return made
        raise AssertionError(size)

    return [
        Case("size-at-limit", lambda now: of_size(now, 1000), "small"),
        Case("size-over-limit", lambda now: of_size(now, 1001), "small"),
        Case("size-over-limit-and-crc-wrong", lambda now: of_size(now, 1001, crc=1), "small"),
        Case(
            "size-over-limit-and-base-offset",
            lambda now: of_size(now, 1001, base_offset=1),
            "small",
        ),
        Case("size-over-limit-v6-zstd", lambda now: batch(
            [Record(b"k", bytes(range(256)) * 8, now)], codec=ZSTD), "small", 6),
        Case("grows-over-limit", lambda now: batch(
            [Record(b"k", b"x" * 3000, now)], codec=GZIP), "to-none-small"),
        Case("record-over-decompressed-limit", lambda now: batch(
            [Record(b"k", b"x" * 3000, now)], codec=GZIP), "small-record"),
        Case("plain-record-over-decompressed-limit", lambda now: batch(
            [Record(b"k", b"x" * 3000, now)]), "small-record"),
        Case("batch-over-decompressed-limit", lambda now: batch(
            [Record(b"k", b"x" * 900, now)] * 10, codec=GZIP), "small-record"),
    ]  # fmt: skip


def _timestamps() -> list[Case]:
    far = 1_000_001 + 60_000
    return [
        Case("max-timestamp-missing", lambda now: at(now, 0, 10, 20, max_timestamp=-1)),
        Case("max-timestamp-missing-gzip", lambda now: at(
            now, 0, 10, 20, max_timestamp=-1, codec=GZIP)),
        Case("max-timestamp-below-base", lambda now: at(now, 0, 10, 20, max_timestamp=now - 5)),
        Case("max-timestamp-too-low", lambda now: at(now, 0, 10, 20, max_timestamp=now + 5)),
        Case("max-timestamp-too-high", lambda now: at(now, 0, 10, 20, max_timestamp=now + 500)),
        Case("max-timestamp-beyond-limit", lambda now: at(
            now, 0, 10, 20, max_timestamp=now + 10_000_000_000)),
        Case("first-not-largest", lambda now: at(now, 50, 10, 20)),
        Case("no-timestamps", lambda now: absolute(-1, -1)),
        Case("no-timestamps-gzip", lambda now: absolute(-1, -1, codec=GZIP)),
        Case("one-timestamp-missing", lambda now: absolute(now, -1, now + 5)),
        Case("first-timestamp-missing", lambda now: absolute(-1, now, now + 5)),
        Case("timestamp-zero", lambda now: absolute(0, 0)),
        Case("timestamp-minus-five", lambda now: absolute(-5, now)),
        Case("timestamp-minus-five-second", lambda now: absolute(now, -5)),
        Case("timestamp-minus-five-gzip", lambda now: absolute(-5, now, codec=GZIP)),
        Case("all-timestamps-negative", lambda now: absolute(-5, -7)),
        Case("one-hour-and-more-ahead", lambda now: at(now, 0, 3_600_000 + 60_000)),
        Case("less-than-one-hour-ahead", lambda now: at(now, 0, 3_600_000 - 60_000)),
        Case("ahead-of-limit", lambda now: at(now, 0, far, 5, far + 7), "limits"),
        Case("ahead-of-limit-gzip", lambda now: at(now, 0, far, 5, codec=GZIP), "limits"),
        Case("behind-limit", lambda now: at(now, -far, 0, -far), "limits"),
        Case("behind-limit-not-first", lambda now: at(now, 0, -far), "limits"),
        Case("within-limits", lambda now: at(now, -900_000, 900_000), "limits"),
        Case("no-timestamps-with-limits", lambda now: absolute(-1, -1), "limits"),
        Case("one-timestamp-missing-with-limits", lambda now: absolute(now, -1), "limits"),
        Case("ahead-of-limit-on-append-time", lambda now: at(now, 10**12), "append-time"),
        Case("no-timestamps-on-append-time", lambda now: absolute(-1, -1), "append-time"),
        Case("append-time", lambda now: at(now, -500, 0, 7), "append-time"),
        Case("append-time-gzip", lambda now: at(now, -500, 0, 7, codec=GZIP), "append-time"),
        Case("delta-overflow", lambda now: of_bodies(
            now, body(timestamp=2**62), body(timestamp=2**62, offset=1))),
    ]  # fmt: skip


def _keys() -> list[Case]:
    return [
        Case("keyless-on-plain", keyless),
        Case("keyed-on-compacted", three, "compacted"),
        Case("keyed-on-compacted-zstd", lambda now: three(now, codec=ZSTD), "compacted"),
        Case("keyless-on-compacted", keyless, "compacted"),
        Case("keyless-on-compacted-gzip", lambda now: keyless(now, codec=GZIP), "compacted"),
        Case("keyless-on-compacted-converting", keyless, "compacted-to-lz4"),
        Case("keyless-and-future", lambda now: batch(
            [Record(None, b"v", now), Record(b"k", b"v", now + 10**10), Record(None, b"v", now + 10**10)]),
            "compacted"),
        Case("five-keyless", lambda now: batch([Record(None, b"v", now)] * 5), "compacted"),
    ]  # fmt: skip


def _record_faults() -> list[Case]:
    bad: dict[str, Callable[[int, int], bytes]] = {
        "record-attributes": lambda now, c: of_bodies(now, body(attributes=0x7F), codec=c),
        "offsets-from-5": lambda now, c: of_bodies(
            now, body(offset=5), body(offset=6), codec=c),
        "offsets-swapped": lambda now, c: of_bodies(
            now, body(offset=0), body(offset=2), body(offset=1), codec=c),
        "offsets-all-zero": lambda now, c: of_bodies(now, body(), body(), codec=c),
        "offset-negative": lambda now, c: of_bodies(now, body(offset=-1), codec=c),
        "record-length-negative": lambda now, c: of_payload(now, b"\x01" + body(), 1, c),
        "record-length-zero": lambda now, c: of_payload(now, b"\x00", 1, c),
        "record-length-too-large": lambda now, c: of_payload(
            now, varint(1000) + body(), 1, c),
        "record-length-huge": lambda now, c: of_payload(
            now, varint(2**31 - 1) + body(), 1, c),
        "record-length-six-bytes": lambda now, c: of_payload(
            now, b"\x80\x80\x80\x80\x80\x01" + body(), 1, c),
        "record-shorter-than-length": lambda now, c: of_bodies(now, body() + b"xx", codec=c),
        "record-longer-than-length": lambda now, c: of_payload(
            now, varint(len(body()) - 1) + body(), 1, c),
        "key-beyond-record": lambda now, c: of_bodies(now, body(key=varint(100) + b"k"), codec=c),
        "key-length-minus-2": lambda now, c: of_bodies(now, body(key=b"\x03"), codec=c),
        "value-beyond-record": lambda now, c: of_bodies(
            now, body(value=varint(100) + b"v"), codec=c),
        "value-length-minus-2": lambda now, c: of_bodies(now, body(value=b"\x03"), codec=c),
        "header-count-negative": lambda now, c: of_bodies(now, body(headers=b"\x01"), codec=c),
        "header-count-huge": lambda now, c: of_bodies(
            now, body(headers=varint(2**30)), codec=c),
        "header-name-null": lambda now, c: of_bodies(now, body(headers=b"\x02\x01\x00"), codec=c),
        "header-name-beyond": lambda now, c: of_bodies(
            now, body(headers=b"\x02\x64x"), codec=c),
        "header-value-beyond": lambda now, c: of_bodies(
            now, body(headers=b"\x02\x02x\x64"), codec=c),
        "varlong-eleven-bytes": lambda now, c: of_bodies(
            now, b"\0" + b"\x80" * 10 + b"\x01" + body()[2:], codec=c),
        "bytes-behind-records": lambda now, c: of_payload(now, encoded(now) + b"xyz", 3, c),
        "records-missing": lambda now, c: of_payload(now, encoded(now, 2), 3, c),
        "records-left": lambda now, c: of_payload(now, encoded(now, 4), 3, c),
        "no-records": lambda now, c: of_payload(now, b"", 3, c),
        "record-of-offset-1-on-compacted": lambda now, c: of_bodies(
            now, body(offset=1), body(offset=2), codec=c),
    }  # fmt: skip
    cases = []
    for name, make in bad.items():
        topic = "compacted" if name.endswith("compacted") else "plain"
        for codec in (NONE, GZIP):
            cases.append(
                Case(
                    f"{name}-{_CODECS[codec]}",
                    lambda now, make=make, codec=codec: make(now, codec),
                    topic,
                )
            )
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        name = _CODECS[codec]
        cases += [
            Case(
                f"{name}-garbage",
                lambda now, codec=codec: of_compressed(now, b"not compressed at all", 3, codec),
            ),
            Case(f"{name}-empty", lambda now, codec=codec: of_compressed(now, b"", 3, codec)),
            Case(
                f"{name}-cut",
                lambda now, codec=codec: of_compressed(
                    now, plain.compress(codec, encoded(now))[:-6], 3, codec
                ),
            ),
            Case(
                f"{name}-bytes-behind",
                lambda now, codec=codec: of_compressed(
                    now, plain.compress(codec, encoded(now)) + b"behind", 3, codec
                ),
            ),
        ]
    return cases


def _conversions() -> list[Case]:
    cases = []
    for topic in ("to-gzip", "to-snappy", "to-lz4", "to-zstd", "to-none"):
        for codec, name in _CODECS.items():
            cases.append(
                Case(f"{name}-{topic}", lambda now, codec=codec: three(now, codec=codec), topic)
            )
    cases += [
        Case(
            "converts-producer-fields",
            lambda now: three(now, producer_id=99, producer_epoch=0, base_sequence=0),
            "to-zstd",
        ),
        Case("converts-missing-max", lambda now: at(now, 5, 0, max_timestamp=-1), "to-zstd"),
        Case(
            "converts-offsets",
            lambda now: of_bodies(now, body(offset=3), body(offset=1)),
            "to-zstd",
        ),
        Case("converts-append-time", lambda now: at(now, 5, 0), "to-zstd-append-time"),
        Case("converts-zstd-v6", lambda now: three(now), "to-zstd", 6),
        Case("converts-garbage", lambda now: of_bodies(now, b"\x01\x02"), "to-zstd"),
        Case("converts-future", lambda now: at(now, 0, 10**10), "to-zstd"),
    ]
    return cases


CASES: list[Case] = [
    *_well_formed(),
    *_header_faults(),
    *_sizes(),
    *_timestamps(),
    *_keys(),
    *_record_faults(),
    *_conversions(),
]
