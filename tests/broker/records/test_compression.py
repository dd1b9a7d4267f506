"""Codecs: what they read, what they write, and that their output is bounded."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys

import cramjam
import pytest

from broker.records.compression import (
    DEFAULT_LEVEL,
    Codec,
    DecompressedTooLarge,
    compress,
    decompress,
)
from broker.records.header import MalformedBatch
from tests.golden.produce_cases import linked_lz4, lz4_with_checksum, xerial

LIMIT = 1 << 24
TEXT = b"".join(b"line %d of a text that repeats itself, " % index for index in range(20_000))
#: Bytes that no codec makes smaller.
NOISE = b"".join(
    (index * 2_654_435_761 % 2**32).to_bytes(4, "little") for index in range(0, 90_000, 3)
)
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"x", TEXT[:1000], TEXT, NOISE, bytes(3_000_000)])
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, memoryview(data))
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, bytes(compressed), LIMIT) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, range(-1, 10)), (Codec.LZ4, range(1, 18)), (Codec.ZSTD, (-131072, -5, 1, 3, 22))],
)
def test_every_level_that_kafka_allows(codec: Codec, levels: range) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT[:50_000], level), LIMIT) == TEXT[:50_000]


def test_default_levels_are_the_fast_ones_of_kafka() -> None:
    for codec in DEFAULT_LEVEL:
        assert compress(codec, TEXT) == compress(codec, TEXT, DEFAULT_LEVEL[codec])
    assert len(compress(Codec.LZ4, TEXT, 12)) < len(compress(Codec.LZ4, TEXT, 9))
    assert len(compress(Codec.GZIP, TEXT, 9)) < len(compress(Codec.GZIP, TEXT, 1))


def test_lz4_is_written_in_blocks_that_java_can_read() -> None:
    frame = bytes(compress(Codec.LZ4, TEXT))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0xE0 == 0x60  # version 1, independent blocks


def test_other_writers_forms_are_read() -> None:
    versions = struct.pack(">ii", 1, 1)
    forms = [
        (Codec.GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:])),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
        (Codec.SNAPPY, xerial(TEXT, versions, 32_768)),
        (Codec.SNAPPY, xerial(TEXT, b"\1\0\0\0\1\0\0\0", 1_000)),
        (Codec.SNAPPY, xerial(TEXT[:9], versions, 5) + xerial(TEXT[9:], versions, 65_536)),
        (Codec.LZ4, linked_lz4(TEXT)),
        (Codec.LZ4, lz4_with_checksum(TEXT)),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT[:9]))
         + bytes(cramjam.zstd.compress(TEXT[9:]))),
    ]  # fmt: skip
    for codec, data in forms:
        assert decompress(codec, data, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec: Codec) -> None:
    compressed = bytes(compress(codec, TEXT[:5_000]))
    for wrong in (
        b"",
        b"\0",
        b"not compressed at all",
        compressed[:-1],
        compressed[: len(compressed) // 2],
        compressed[1:],
        b"\xff" * 100,
    ):
        with pytest.raises(MalformedBatch):
            decompress(codec, wrong, LIMIT)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(MalformedBatch):
        decompress(codec, b"x", LIMIT)


def test_a_snappy_block_cannot_claim_more_than_snappy_can_do() -> None:
    claim = b"\xff\xff\xff\x7f"  # 256 MiB, in 4 bytes
    with pytest.raises(MalformedBatch, match="claims"):
        decompress(Codec.SNAPPY, claim + b"\0", 1 << 30)
    framed = b"\x82SNAPPY\0" + bytes(8) + struct.pack(">i", 5) + claim + b"\0"
    with pytest.raises(MalformedBatch, match="claims"):
        decompress(Codec.SNAPPY, framed, 1 << 30)


BOMBS = """
import resource, struct, sys
import cramjam
from broker.records.compression import Codec, DecompressedTooLarge, compress, decompress

MIB = 1 << 20
zeros = bytes(MIB)
lz4_block = bytes(cramjam.lz4.compress_block(bytes(65536), store_size=False))
snappy_block = bytes(cramjam.snappy.compress_raw(bytes(32768)))
repeat = 128 * 1024 << 3 | 1 << 1  # a zstd block that repeats one byte
bombs = {
    "gzip of 500 members": (Codec.GZIP, bytes(compress(Codec.GZIP, zeros)) * 500),
    "zstd of 500 frames": (Codec.ZSTD, bytes(compress(Codec.ZSTD, zeros)) * 500),
    "zstd frame of 4000 repeats": (
        Codec.ZSTD,
        b"\\x28\\xb5\\x2f\\xfd\\x00\\x88"
        + (struct.pack("<I", repeat)[:3] + b"x") * 3999 + struct.pack("<I", repeat | 1)[:3] + b"x",
    ),
    "lz4 of 8000 blocks": (
        Codec.LZ4,
        bytes.fromhex("04224d18604082")
        + (struct.pack("<I", len(lz4_block)) + lz4_block) * 8000 + bytes(4),
    ),
    "snappy of 16000 blocks": (
        Codec.SNAPPY,
        b"\\x82SNAPPY\\0" + struct.pack(">ii", 1, 1)
        + (struct.pack(">i", len(snappy_block)) + snappy_block) * 16000,
    ),
}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, (codec, bomb) in bombs.items():
    try:
        decompress(codec, bomb, 16 * MIB)
    except DecompressedTooLarge:
        continue
    sys.exit(name)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_costs_the_memory_of_the_bound_and_not_its_own() -> None:
    """500 MB from at most a few MB, bound 16 MiB, for every codec."""
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 3 * 16 * 1024
