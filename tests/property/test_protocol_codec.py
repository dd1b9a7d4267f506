"""The codec against kio: every served API and version, requests and responses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from broker.protocol import schema
from broker.protocol.api_versions import SERVED
from broker.protocol.codec import Cursor, entity_codec
from tests.support.message_strategies import kio_bytes, messages, versions

VERSIONS = [(int(api_key), version) for api_key in SERVED for version in versions(api_key)]
#: Not in kio: see broker/protocol/supplements.
REQUESTS = [pair for pair in VERSIONS if pair != (18, 5)]


def our_bytes(message: Any) -> bytes:
    out = bytearray()
    entity_codec(type(message)).write(out, message)
    return bytes(out)


@pytest.mark.parametrize(("api_key", "version"), REQUESTS)
def test_requests_decode_as_in_kio(api_key: int, version: int) -> None:
    @settings(max_examples=12, deadline=None)
    @given(messages(schema.request_type(api_key, version)), st.binary(max_size=3))
    def check(message: Any, prefix: bytes) -> None:
        encoded = kio_bytes(message)
        frame = memoryview(bytearray(prefix + encoded))
        assert schema.decode_request(api_key, version, frame, len(prefix)) == message
        assert our_bytes(message) == encoded

    check()


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_responses_encode_as_in_kio(api_key: int, version: int) -> None:
    entity_type = schema.response_type(api_key, version)

    @settings(max_examples=12, deadline=None)
    @given(messages(entity_type))
    def check(message: Any) -> None:
        encoded = our_bytes(message)
        assert encoded == kio_bytes(message)
        assert entity_reader(entity_type)(encoded, 0) == (message, len(encoded))
        cursor = Cursor(memoryview(encoded), 0)
        assert entity_codec(entity_type).read(cursor) == message
        assert cursor.position == len(encoded)

    check()
