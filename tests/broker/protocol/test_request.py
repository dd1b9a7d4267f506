from __future__ import annotations

import pytest

from broker.protocol.errors import MalformedRequest
from broker.protocol.request import parse_header


def header(
    api_key: int,
    version: int,
    client_id: bytes | None = b"me",
    tags: bytes = b"",
    body: bytes = b"",
) -> memoryview:
    length = -1 if client_id is None else len(client_id)
    return memoryview(
        api_key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + (42).to_bytes(4, "big")
        + length.to_bytes(2, "big", signed=True)
        + (client_id or b"")
        + tags
        + body
    )


def test_header_of_a_plain_version() -> None:
    parsed = parse_header(header(3, 8, body=b"body"))
    assert (parsed.api_key, parsed.api_version, parsed.correlation_id) == (3, 8, 42)
    assert (parsed.client_id, parsed.body_offset) == ("me", 12)


def test_header_of_a_flexible_version_skips_unknown_tagged_fields() -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    parsed = parse_header(header(3, 9, tags=tags, body=b"body"))
    assert (parsed.client_id, parsed.body_offset) == ("me", 12 + len(tags))


def test_client_id_may_be_null_or_empty_and_need_not_be_text() -> None:
    assert parse_header(header(3, 1, client_id=None)).client_id is None
    assert parse_header(header(3, 1, client_id=b"")).client_id == ""
    assert parse_header(header(3, 1, client_id=b"\xff!")).client_id == "\ufffd!"


def test_unknown_versions_and_apis_still_have_a_correlation_id() -> None:
    assert parse_header(header(18, 99, tags=b"\0")).correlation_id == 42
    assert parse_header(header(18, -1)).api_version == -1
    assert parse_header(header(9999, 7)).api_key == 9999


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x01\0\0",
        bytes(header(3, 1))[:-1],
        bytes(header(3, 1, client_id=None))[:-2] + b"\xff\xfe",
        bytes(header(3, 9)),  # no tagged fields
        bytes(header(3, 9, tags=b"\x01\x00\x05ab")),
        bytes(header(3, 9, tags=b"\xff\xff\xff\xff\x0f")),
        bytes(header(3, 9, tags=b"\xff\xff\xff\xff\xff\xff")),
    ],
)
def test_cut_or_garbled_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_header(memoryview(frame))
