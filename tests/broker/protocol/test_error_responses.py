from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.model.error_code import ErrorCode
from broker.protocol import schema
from broker.protocol.api_versions import SERVED, ApiKey
from broker.protocol.codec import Cursor, entity_codec
from broker.protocol.error_responses import error_response
from broker.protocol.hot import fetch, list_offsets, metadata, produce

GOLDEN = Path(__file__).parents[2] / "golden" / "protocol" / "error_answers.txt"
HOT = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
}
VERSIONS = [
    (int(key), version)
    for key, served in SERVED.items()
    for version in range(served.min_version, served.max_version + 1)
]


def golden_answers() -> dict[tuple[int, int], tuple[bytes, bytes]]:
    answers = {}
    for line in GOLDEN.read_text().splitlines():
        key, version, request, response = line.split(" ")
        answers[int(key), int(version)] = (bytes.fromhex(request), bytes.fromhex(response))
    return answers


ANSWERS = golden_answers()


def decode_request(api_key: int, version: int, body: bytes) -> Any:
    frame = memoryview(bytearray(body))
    hot = HOT.get(ApiKey(api_key))
    if hot is not None:
        return hot.decode_request(version, frame, 0)  # type: ignore[attr-defined]
    return schema.decode_request(api_key, version, frame, 0)


def decode_response(api_key: int, version: int, data: bytes) -> Any:
    """Response without its length; every byte is read."""
    header = 5 if schema.has_flexible_header(api_key, version) else 4
    cursor = Cursor(memoryview(data), header)
    response = entity_codec(schema.response_type(api_key, version)).read(cursor)
    assert cursor.position == len(data)
    return response


def without_order(value: Any) -> Any:
    """Kafka builds some answers from hash maps: arrays are compared as sets."""
    if isinstance(value, tuple):
        return sorted((without_order(item) for item in value), key=repr)
    if hasattr(value, "__dataclass_fields__"):
        return [(name, without_order(getattr(value, name))) for name in value.__dataclass_fields__]
    return value


def text_of(response: Any) -> str | None:
    """Error message of the response, or of the first part that has one."""
    if isinstance(response, tuple):
        return text_of(response[0]) if response else None
    for name in getattr(response, "__dataclass_fields__", ()):
        value = getattr(response, name)
        if name == "error_message" and value:
            return str(value)
        found = text_of(value)
        if found is not None:
            return found
    return None


def test_golden_answers_cover_every_served_version() -> None:
    assert sorted(ANSWERS) == sorted(VERSIONS)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_whole_request_is_refused_as_kafka_does(api_key: int, version: int) -> None:
    body, expected = ANSWERS[api_key, version]
    request = decode_request(api_key, version, body)
    # Where there is room some APIs tell the error's own text, others none.
    message = text_of(decode_response(api_key, version, expected))
    frame = error_response(api_key, version, 77, ErrorCode.UNKNOWN_SERVER_ERROR, request, message)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:8] == expected[:4]
    assert without_order(decode_response(api_key, version, frame[4:])) == without_order(
        decode_response(api_key, version, expected)
    )
    assert len(frame) - 4 == len(expected)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_request_that_could_not_be_read_is_refused_in_its_own_version(
    api_key: int, version: int
) -> None:
    frame = error_response(api_key, version, 77, ErrorCode.INVALID_REQUEST)
    decode_response(api_key, version, frame[4:])


def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    frame = error_response(ApiKey.API_VERSIONS, 99, 7, ErrorCode.UNSUPPORTED_VERSION)
    assert frame == bytes.fromhex("0000001000000007002300000001001200000005")


def test_response_header_of_api_versions_never_has_tagged_fields() -> None:
    for version in range(6):
        frame = error_response(ApiKey.API_VERSIONS, version, 7, ErrorCode.INVALID_REQUEST)
        assert frame[4:10] == bytes.fromhex("00000007002a")
