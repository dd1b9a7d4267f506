from __future__ import annotations

from uuid import UUID

import pytest

from broker.model.error_code import ErrorCode
from broker.protocol import schema
from broker.protocol.api_versions import SERVED, ApiKey
from broker.protocol.codec import Cursor, entity_codec
from broker.protocol.errors import MalformedRequest
from broker.protocol.limits import MAX_REQUEST_ELEMENTS
from tests.support.message_strategies import versions


def create_topics_response(version: int) -> bytes:
    """Written once, for the newest version."""
    types = schema.response_types(ApiKey.CREATE_TOPICS, version)
    response = types.CreateTopicsResponse(
        throttle_time=3,
        topics=[
            types.CreatableTopicResult(
                name="t",
                topic_id=UUID(int=7),
                error_code=ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                error_message="no",
                num_partitions=2,
                replication_factor=1,
                configs=[
                    types.CreatableTopicConfigs(
                        name="a", value=None, read_only=False, config_source=5, is_sensitive=False
                    )
                ],
            )
        ],
    )
    return schema.encode_response(ApiKey.CREATE_TOPICS, version, 9, response)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_one_handler_answers_every_version(version: int) -> None:
    frame = create_topics_response(version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (b"\0" * 15 + b"\7" in frame) == (version >= 7)
    assert (b"\x02a\0" in frame) == (version >= 5)
    assert (136).to_bytes(2, "big") in frame  # an error code newer than kio


def test_plain_numbers_are_taken_for_durations_times_and_errors() -> None:
    types = schema.response_types(ApiKey.PRODUCE, 3)
    response = types.ProduceResponse(
        responses=[
            types.TopicProduceResponse(
                name="t",
                partition_responses=[
                    types.PartitionProduceResponse(
                        index=1, error_code=-1, base_offset=5, log_append_time=1234
                    )
                ],
            )
        ],
        throttle_time=17,
    )
    frame = schema.encode_response(ApiKey.PRODUCE, 3, 1, response)
    assert (1234).to_bytes(8, "big") in frame
    assert frame.endswith((17).to_bytes(4, "big"))


def test_field_that_no_version_has_is_a_type_error() -> None:
    types = schema.response_types(ApiKey.CREATE_TOPICS, 2)
    with pytest.raises(TypeError, match="no served version"):
        types.CreatableTopicResult(name="t", error_codee=0)


def test_field_that_is_forgotten_is_a_type_error() -> None:
    types = schema.response_types(ApiKey.CREATE_TOPICS, 7)
    with pytest.raises(TypeError):
        types.CreatableTopicResult(name="t")


def test_class_that_only_other_versions_have_builds_nothing() -> None:
    types = schema.response_types(ApiKey.FETCH, 4)
    assert types.NodeEndpoint(node_id=1, host="h", port=1, rack=None) is None


def test_class_that_no_version_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        schema.response_types(ApiKey.FETCH, 4).NoSuchThing


def test_empty_tagged_array_given_as_list_is_not_written() -> None:
    types = schema.response_types(ApiKey.FETCH, 16)
    response = types.FetchResponse(
        throttle_time=0, error_code=0, session_id=0, responses=[], node_endpoints=[]
    )
    assert schema.encode_response(ApiKey.FETCH, 16, 1, response).endswith(b"\1\0")


def test_api_versions_5_request_is_read() -> None:
    body = b"\x03me\x041.0\x00\x00\x00\x00\x07\x00"
    request = schema.decode_request(ApiKey.API_VERSIONS, 5, memoryview(body), 0)
    assert (request.client_software_name, request.client_software_version) == ("me", "1.0")
    assert (request.cluster_id, request.node_id) == (None, 7)


def test_text_that_is_no_utf8_is_replaced() -> None:
    body = b"\0\0\0\1\0\2\xffa"
    request = schema.decode_request(ApiKey.METADATA, 0, memoryview(body), 0)
    assert request.topics[0].name == "\ufffda"


def test_preload_finds_every_served_version() -> None:
    for _ in schema.preload():
        pass
    for api_key in SERVED:
        for version in versions(api_key):
            assert schema.request_type(api_key, version)
            assert schema.response_type(api_key, version)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b"\x7f\xff\xff\xff"),  # 2^31 - 1 topics
        (1, b"\xff\xff\xff\xfe"),  # -2 topics
        (0, b"\xff\xff\xff\xff"),  # null where there must be an array
        (9, b"\xff\xff\xff\xff\x0f" + b"\0" * 40),
        (9, b"\xff\xff\xff\xff\xff\xff"),  # a varint without end
        (9, b"\1\1\1\1" + b"\xff\xff\xff\xff\x0f"),  # tagged fields
        (9, b"\1\1\1\1" + b"\1\0\xff\xff\xff\xff\x0f"),  # the size of a tagged field
    ],
)
def test_hostile_lengths_are_malformed(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        schema.decode_request(ApiKey.METADATA, version, memoryview(body), 0)


def test_more_elements_than_the_limit_are_malformed_though_the_bytes_are_there() -> None:
    def body(count: int) -> memoryview:
        return memoryview(count.to_bytes(4, "big") + b"\0\0" * count)

    topics = schema.decode_request(ApiKey.METADATA, 1, body(1000), 0).topics
    assert len(topics) == 1000
    with pytest.raises(MalformedRequest, match="elements"):
        schema.decode_request(ApiKey.METADATA, 1, body(MAX_REQUEST_ELEMENTS + 1), 0)


def test_known_tagged_field_of_another_size_is_malformed() -> None:
    read = entity_codec(schema.response_type(ApiKey.FETCH, 16)).read
    good = b"\0\0\0\0" + b"\0\0" + b"\0\0\0\0" + b"\1" + b"\1" + b"\0\1\1"
    assert read(Cursor(memoryview(good), 0)).node_endpoints == ()
    with pytest.raises(MalformedRequest):
        read(Cursor(memoryview(good[:-2] + b"\2\1\0"), 0))
