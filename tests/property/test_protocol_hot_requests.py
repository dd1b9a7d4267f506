"""Hot request decoders against kio, every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.hot import fetch, list_offsets, metadata, produce
from tests.support.hot_requests import (
    same_fetch,
    same_list_offsets,
    same_metadata,
    same_produce,
)
from tests.support.message_strategies import kio_bytes, messages, versions


def check_decoder(api_key: ApiKey, version: int, compare: Any, decode: Any) -> None:
    @settings(max_examples=25, deadline=None)
    @given(messages(schema.request_type(api_key, version)), st.binary(max_size=3))
    def check(message: Any, prefix: bytes) -> None:
        frame = memoryview(bytearray(prefix + kio_bytes(message)))
        compare(version, decode(version, frame, len(prefix)), message)

    check()


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(version: int) -> None:
    check_decoder(ApiKey.PRODUCE, version, same_produce, produce.decode_request)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(version: int) -> None:
    check_decoder(ApiKey.FETCH, version, same_fetch, fetch.decode_request)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(version: int) -> None:
    check_decoder(ApiKey.LIST_OFFSETS, version, same_list_offsets, list_offsets.decode_request)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(version: int) -> None:
    check_decoder(ApiKey.METADATA, version, same_metadata, metadata.decode_request)
