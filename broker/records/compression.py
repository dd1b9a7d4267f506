"""The codecs of record batches, every output bounded.

``decompress`` never writes more than ``max_bytes``: it hands the decoder an output buffer of a
bounded size and the decoder stops where the buffer ends, so a bomb of 15 KB that would become
500 MB costs the time and memory of ``max_bytes``, not of 500 MB. Buffers of 256 KiB and more are
anonymous maps, whose pages exist only once written. The size is not known beforehand (Java writes
zstd and lz4 without it), so it is guessed, and multiplied by 4 until the output fits.

Formats: gzip (several members too), snappy as one raw block (librdkafka) or in xerial's frames
(Java), lz4 frames, zstd frames. What we write, Java can read: snappy in xerial's frames, lz4 in
independent blocks (Java refuses dependent ones, which cramjam and lz4 libraries write by default).

All work is in C calls that release the GIL. Measured (1 MB of text, one core, ms, compress /
decompress with its buffer): gzip 15 / 3.5, snappy 1.2 / 1.3, lz4 2.4 / 1.3, zstd 5.2 / 1.8.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from broker.records.header import Buffer, MalformedBatch


class Codec(IntEnum):
    """Number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedTooLarge(MalformedBatch):
    """The records would take more than the bound when decompressed."""


#: Bound for readers that have no reason for another one.
DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024

#: ``compression.gzip.level`` and the like when not configured (values of Kafka 4.4).
DEFAULT_LEVEL: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}

_FIRST_GUESS_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 8
_GROWTH = 4
_MAP_FROM_BYTES = 256 * 1024
#: What cramjam says when the output does not fit; a test watches that it stays so.
_OUTPUT_IS_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: Magic and two version numbers; some producers write those little-endian, so nobody reads them (G32).
_XERIAL_HEADER_SIZE = 16
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
#: No snappy element makes more than 64 bytes of 3: a block that claims more is a lie.
_SNAPPY_MAX_RATIO = 22


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """``data`` in the framing that Kafka's own clients read; ``level`` as in Kafka's configs."""
    if codec is Codec.GZIP:
        return memoryview(cramjam.gzip.compress(data, level=_gzip_level(level)))
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        compressor = cramjam.lz4.Compressor(
            level=_lz4_level(level), content_checksum=False, block_linked=False
        )
        compressor.compress(bytes(data))  # the only call here that takes nothing but bytes
        return memoryview(compressor.finish())
    if codec is Codec.ZSTD:
        return memoryview(
            cramjam.zstd.compress(data, level=DEFAULT_LEVEL[codec] if level is None else level)
        )
    return data


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """The plain bytes; ``DecompressedTooLarge`` above ``max_bytes``, ``MalformedBatch`` on garbage."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    decode = _DECODERS.get(codec)
    if decode is None:
        raise MalformedBatch(f"unknown compression codec {codec}")
    return _decompress_by_guess(decode, data, max_bytes)


def _gzip_level(level: int | None) -> int | None:
    return None if level is None or level < 0 else level


def _lz4_level(level: int | None) -> int:
    """Kafka's default of 9 stands for the fast compressor; other levels for the thorough one."""
    return 0 if level is None or level == DEFAULT_LEVEL[Codec.LZ4] else level


_DECODERS: dict[int, Callable[..., int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_by_guess(decode: Callable[..., int], data: Buffer, max_bytes: int) -> Buffer:
    size = min(max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * len(data)), max_bytes)
    while True:
        output = _allocate(size)
        try:
            return memoryview(output)[: decode(data, output)]
        except (cramjam.DecompressionError, OSError, ValueError) as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise MalformedBatch(f"records cannot be decompressed: {error}") from None
        if size == max_bytes:
            raise DecompressedTooLarge(f"records decompress to more than {max_bytes} bytes")
        size = min(size * _GROWTH, max_bytes)


def _allocate(size: int) -> bytearray | mmap.mmap:
    return bytearray(size) if size < _MAP_FROM_BYTES else mmap.mmap(-1, size)


def _decompress_snappy(data: memoryview, max_bytes: int) -> Buffer:
    blocks = _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise DecompressedTooLarge(f"records decompress to more than {max_bytes} bytes")
    output = _allocate(total)
    view = memoryview(output)
    position = 0
    try:
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, view[position : position + size])
            position += size
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise MalformedBatch(f"records cannot be decompressed: {error}") from None
    return view


def _snappy_size(block: memoryview) -> int:
    """Size that the block claims; checked before anything of that size is allocated."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise MalformedBatch(f"records cannot be decompressed: {error}") from None
    if not 0 < size <= len(block) * _SNAPPY_MAX_RATIO:
        raise MalformedBatch(f"a snappy block of {len(block)} bytes claims to hold {size}")
    return size


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position = 0
    end = len(data)
    while position < end:
        if data[position : position + 8] == _XERIAL_MAGIC:  # streams may be concatenated
            position += _XERIAL_HEADER_SIZE
            continue
        if end - position < _BLOCK_LENGTH.size:
            raise MalformedBatch("a snappy stream ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= end - position:
            raise MalformedBatch(f"a snappy block claims {length} of {end - position} bytes")
        blocks.append(data[position : position + length])
        position += length
    if not blocks:
        raise MalformedBatch("a snappy stream without a block")
    return blocks


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        output += _BLOCK_LENGTH.pack(len(block))
        output += memoryview(block)
    return output
