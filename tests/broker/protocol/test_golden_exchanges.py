"""What real clients sent to Apache Kafka 4.4 and what it answered (tests/golden/protocol)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.model.error_code import ErrorCode
from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.codec import Cursor, entity_codec
from broker.protocol.error_responses import error_response
from broker.protocol.hot import fetch, list_offsets, metadata, produce
from broker.protocol.request import RequestHeader, parse_header
from tests.support import hot_requests

GOLDEN = Path(__file__).parents[2] / "golden" / "protocol" / "exchanges.jsonl"


class Exchange(NamedTuple):
    header: RequestHeader
    request: memoryview
    response: bytes


def exchanges() -> list[Any]:
    found = []
    for line in GOLDEN.read_text().splitlines():
        fields = json.loads(line)
        request = memoryview(bytearray.fromhex(fields["request"]))
        header = parse_header(request)
        name = f"{fields['client']} {ApiKey(header.api_key).wire_name} v{header.api_version}"
        exchange = Exchange(header, request, bytes.fromhex(fields["response"]))
        found.append(pytest.param(exchange, id=name))
    return found


ALL = exchanges()
EXCHANGES = [param for param in ALL if param.values[0].header.api_version != 99]
HOT = [
    param
    for param in EXCHANGES
    if param.values[0].header.api_key
    in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA)
]


def decoded_request(exchange: Exchange) -> Any:
    header = exchange.header
    return schema.decode_request(
        header.api_key, header.api_version, exchange.request, header.body_offset
    )


def decoded_response(exchange: Exchange) -> Any:
    key, version = exchange.header.api_key, exchange.header.api_version
    cursor = Cursor(
        memoryview(exchange.response), 5 if schema.has_flexible_header(key, version) else 4
    )
    response = entity_codec(schema.response_type(key, version)).read(cursor)
    assert cursor.position == len(exchange.response)
    return response


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_requests_of_real_clients_are_read_to_the_last_byte(exchange: Exchange) -> None:
    request = decoded_request(exchange)
    out = bytearray()
    entity_codec(type(request)).write(out, request)
    assert bytes(out) == exchange.request[exchange.header.body_offset :]


def test_unknown_version_of_api_versions_is_answered_as_kafka_does() -> None:
    (exchange,) = (param.values[0] for param in ALL if param not in EXCHANGES)
    frame = error_response(
        ApiKey.API_VERSIONS, 99, exchange.header.correlation_id, ErrorCode.UNSUPPORTED_VERSION
    )
    assert frame[4:] == exchange.response


@pytest.mark.parametrize("exchange", HOT)
def test_hot_decoders_read_the_same(exchange: Exchange) -> None:
    version, frame, offset = (
        exchange.header.api_version,
        exchange.request,
        exchange.header.body_offset,
    )
    message = decoded_request(exchange)
    match exchange.header.api_key:
        case ApiKey.PRODUCE:
            request = produce.decode_request(version, frame, offset)
            hot_requests.same_produce(version, request, message)
        case ApiKey.FETCH:
            hot_requests.same_fetch(version, fetch.decode_request(version, frame, offset), message)
        case ApiKey.LIST_OFFSETS:
            listed = list_offsets.decode_request(version, frame, offset)
            hot_requests.same_list_offsets(version, listed, message)
        case ApiKey.METADATA:
            asked = metadata.decode_request(version, frame, offset)
            hot_requests.same_metadata(version, asked, message)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_answers_of_kafka_are_encoded_byte_for_byte(exchange: Exchange) -> None:
    header = exchange.header
    frame = schema.encode_response(
        header.api_key, header.api_version, header.correlation_id, decoded_response(exchange)
    )
    assert frame == len(exchange.response).to_bytes(4, "big") + exchange.response


@pytest.mark.parametrize("exchange", HOT)
def test_hot_encoders_give_the_bytes_of_kafka(exchange: Exchange) -> None:
    message = decoded_response(exchange)
    version, correlation_id = exchange.header.api_version, exchange.header.correlation_id
    match exchange.header.api_key:
        case ApiKey.PRODUCE:
            frame = encoded_produce(version, correlation_id, message)
        case ApiKey.FETCH:
            frame = encoded_fetch(version, correlation_id, message)
        case ApiKey.LIST_OFFSETS:
            frame = encoded_list_offsets(version, correlation_id, message)
        case _:
            frame = encoded_metadata(version, correlation_id, message)
    assert frame == len(exchange.response).to_bytes(4, "big") + exchange.response


def key_of(topic: Any, name: str) -> Any:
    return getattr(topic, name) if hasattr(topic, name) else topic.topic_id


def encoded_produce(version: int, correlation_id: int, message: Any) -> bytes:
    topics = [
        (
            key_of(topic, "name"),
            [
                (
                    part.index,
                    part.error_code,
                    part.base_offset,
                    -1,
                    getattr(part, "log_start_offset", -1),
                    None,
                    getattr(part, "error_message", None),
                )
                for part in topic.partition_responses
            ],
        )
        for topic in message.responses
    ]
    return produce.encode_response(version, correlation_id, topics)


def pair(entity: Any, first: str, second: str) -> tuple[int, int] | None:
    values = getattr(entity, first, -1), getattr(entity, second, -1)
    return None if values == (-1, -1) else values


def encoded_fetch(version: int, correlation_id: int, message: Any) -> bytes:
    topics = []
    for topic in message.responses:
        results = [
            fetch.FetchPartitionResult(
                part.partition_index,
                part.error_code,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                None
                if part.aborted_transactions is None
                else [
                    (aborted.producer_id, aborted.first_offset)
                    for aborted in part.aborted_transactions
                ],
                part.preferred_read_replica,
                part.records,
                pair(getattr(part, "current_leader", None), "leader_id", "leader_epoch"),
                pair(getattr(part, "diverging_epoch", None), "epoch", "end_offset"),
            )
            for part in topic.partitions
        ]
        topics.append((key_of(topic, "topic"), results))
    nodes = [
        (node.node_id, node.host, node.port, node.rack)
        for node in getattr(message, "node_endpoints", ())
    ]
    pieces = fetch.encode_response(
        version, correlation_id, 0, message.error_code, message.session_id, topics, nodes
    )
    assert all(isinstance(piece, bytes) for piece in pieces)
    return b"".join(pieces)  # type: ignore[arg-type]


def encoded_list_offsets(version: int, correlation_id: int, message: Any) -> bytes:
    topics = [
        (
            topic.name,
            [
                (
                    part.partition_index,
                    part.error_code,
                    hot_requests.wire_timestamp(part),
                    part.offset,
                    getattr(part, "leader_epoch", -1),
                )
                for part in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return list_offsets.encode_response(version, correlation_id, 0, topics)


def encoded_metadata(version: int, correlation_id: int, message: Any) -> bytes:
    fragments = []
    for topic in message.topics:
        partitions = [
            metadata.MetadataPartition(
                part.partition_index,
                part.leader_id,
                getattr(part, "leader_epoch", -1),
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
                part.error_code,
            )
            for part in topic.partitions
        ]
        described = metadata.MetadataTopic(
            topic.name,
            getattr(topic, "topic_id", None),
            partitions,
            topic.error_code,
            topic.is_internal,
        )
        fragments.append(metadata.encode_topic_fragment(version, described))
    brokers = [(node.node_id, node.host, node.port, node.rack) for node in message.brokers]
    return metadata.encode_response(
        version,
        correlation_id,
        0,
        brokers,
        message.cluster_id,
        message.controller_id,
        fragments,
    )
