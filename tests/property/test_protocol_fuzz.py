"""Hostile bytes: the header parser and every request decoder only ever raise MalformedRequest.

Bodies are random, cut short, mutated, and with lengths of all kinds planted. None of them may build
more than its bytes pay for: memory is bounded by a factor of the frame.
"""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import schema
from broker.protocol.api_versions import SERVED, ApiKey
from broker.protocol.codec import entity_codec
from broker.protocol.errors import MalformedRequest
from broker.protocol.hot import fetch, list_offsets, metadata, produce
from broker.protocol.request import parse_header
from tests.support.message_strategies import versions
from tests.support.sample_messages import sample

Decoder = Callable[[int, memoryview, int], Any]

HOT: dict[ApiKey, Decoder] = {
    ApiKey.PRODUCE: produce.decode_request,
    ApiKey.FETCH: fetch.decode_request,
    ApiKey.LIST_OFFSETS: list_offsets.decode_request,
    ApiKey.METADATA: metadata.decode_request,
}


def by_schema(api_key: ApiKey) -> Decoder:
    return lambda version, frame, offset: schema.decode_request(api_key, version, frame, offset)


DECODERS: list[tuple[str, ApiKey, Decoder]] = [
    (f"{ApiKey(key).wire_name} by schema", ApiKey(key), by_schema(ApiKey(key))) for key in SERVED
] + [(f"{key.wire_name} by hand", key, decode) for key, decode in HOT.items()]
CASES = [
    pytest.param(key, version, decode, id=f"{name} v{version}")
    for name, key, decode in DECODERS
    for version in versions(key)
]

PLANTED = st.sampled_from(
    [
        b"\x7f\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xfe",
        b"\x7f\xff",
        b"\x80\x00",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00",
        b"\x80\x80\x80\x80\x80\x00",
    ]
)


def valid_body(api_key: ApiKey, version: int) -> bytes:
    message = sample(schema.request_type(api_key, version))
    out = bytearray()
    entity_codec(type(message)).write(out, message)
    return bytes(out)


@st.composite
def spoilt(draw: Any, body: bytes) -> bytes:
    """``body`` with up to four bytes changed, or a length planted, or cut short."""
    spoiled = bytearray(body)
    for _ in range(draw(st.integers(0, 4))):
        if spoiled:
            spoiled[draw(st.integers(0, len(spoiled) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        position = draw(st.integers(0, len(spoiled)))
        planted = draw(PLANTED)
        end = position + (len(planted) if draw(st.booleans()) else 0)
        spoiled[position:end] = planted
    if draw(st.booleans()):
        del spoiled[draw(st.integers(0, len(spoiled))) :]
    return bytes(spoiled)


@pytest.mark.parametrize(("api_key", "version", "decode"), CASES)
def test_decoder_only_raises_malformed_request(
    api_key: ApiKey, version: int, decode: Decoder
) -> None:
    body = valid_body(api_key, version)

    @settings(max_examples=25, deadline=None)
    @given(spoilt(body) | st.binary(max_size=80))
    def check(spoiled: bytes) -> None:
        with contextlib.suppress(MalformedRequest):
            decode(version, memoryview(bytearray(spoiled)), 0)

    check()


@pytest.mark.parametrize(("api_key", "version", "decode"), CASES)
def test_every_cut_of_a_request_is_malformed_or_whole(
    api_key: ApiKey, version: int, decode: Decoder
) -> None:
    body = valid_body(api_key, version)
    decode(version, memoryview(body), 0)
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode(version, memoryview(body[:end]), 0)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_header_only_raises_malformed_request(frame: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        header = parse_header(memoryview(frame))
        assert 10 <= header.body_offset <= len(frame)


@pytest.mark.parametrize(
    ("api_key", "version", "decode", "prefix", "element"),
    [
        (ApiKey.METADATA, 1, metadata.decode_request, b"\0\x04\0\0", b"\0\0"),
        (ApiKey.METADATA, 1, by_schema(ApiKey.METADATA), b"\0\x04\0\0", b"\0\0"),
        (ApiKey.METADATA, 9, by_schema(ApiKey.METADATA), b"\x80\x80\x10", b"\1\0"),
        (
            ApiKey.PRODUCE,
            3,
            produce.decode_request,
            b"\xff\xff\0\1\0\0\0\0" + b"\0\0\0\1\0\0" + b"\0\4\0\0",
            b"\0\0\0\0\xff\xff\xff\xff",
        ),
    ],
)
def test_a_frame_of_tiny_elements_is_refused_before_it_is_built(
    api_key: ApiKey, version: int, decode: Decoder, prefix: bytes, element: bytes
) -> None:
    frame = memoryview(prefix + element * 300_000)
    with contextlib.suppress(MalformedRequest):
        decode(version, memoryview(prefix), 0)  # imports, compiles
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest):
            decode(version, frame, 0)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(frame)
    finally:
        tracemalloc.stop()
