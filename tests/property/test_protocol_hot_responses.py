"""Hot response encoders against kio, every version: the same bytes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.model.file_region import FileRegion
from broker.model.ids import ZERO_TOPIC_ID
from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.hot import fetch, list_offsets, metadata, produce
from tests.support.message_strategies import versions

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=10) | st.just("x" * 300)
NULLABLE_TEXT = st.none() | TEXT
# kio speaks of times: what it can say is a subset of what a 64-bit number can.
TIMES = st.just(-1) | st.integers(0, 2**31).map(lambda seconds: seconds * 1000)
ERRORS = st.integers(-1, 120)
NODES = st.lists(st.tuples(INT32, TEXT, INT32, NULLABLE_TEXT), max_size=3)


def as_time(milliseconds: int) -> datetime | None:
    return None if milliseconds == -1 else datetime.fromtimestamp(milliseconds // 1000, UTC)


def topics_of(version: int, id_from: int, partitions: Any) -> Any:
    key = st.uuids() if version >= id_from else TEXT
    return st.lists(st.tuples(key, st.lists(partitions, max_size=4)), max_size=3)


def encoded(api_key: ApiKey, version: int, correlation_id: int, message: Any) -> bytes:
    return schema.encode_response(api_key, version, correlation_id, message)


# --- Produce ----------------------------------------------------------------------------------

PRODUCE_PARTITIONS = st.tuples(
    INT32,
    ERRORS,
    INT64,
    TIMES,
    INT64,
    st.none() | st.lists(st.tuples(INT32, NULLABLE_TEXT), max_size=2),
    NULLABLE_TEXT,
)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(version: int) -> None:
    @settings(max_examples=20, deadline=None)
    @given(st.data(), INT32, topics_of(version, 13, PRODUCE_PARTITIONS), INT32, NODES)
    def check(data: Any, correlation_id: int, topics: Any, throttle_ms: int, nodes: Any) -> None:
        leaders = data.draw(
            st.fixed_dictionaries(
                {},
                optional={
                    (key, part[0]): st.tuples(INT32, INT32).filter(lambda pair: pair != (-1, -1))
                    for key, parts in topics
                    for part in parts
                },
            )
        )
        types = schema.response_types(ApiKey.PRODUCE, version)
        message = types.ProduceResponse(
            responses=[produce_topic(types, *topic, leaders) for topic in topics],
            throttle_time=throttle_ms,
            node_endpoints=[node_endpoint(types, *node) for node in nodes],
        )
        assert produce.encode_response(
            version, correlation_id, topics, throttle_ms, leaders, nodes
        ) == encoded(ApiKey.PRODUCE, version, correlation_id, message)

    check()


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_to_one_partition(version: int) -> None:
    """The answer that nearly every request gets has a path of its own."""
    plain = st.tuples(INT32, ERRORS, INT64, TIMES, INT64, st.none(), st.none())

    @settings(max_examples=20, deadline=None)
    @given(INT32, st.uuids() if version >= 13 else TEXT, plain, INT32)
    def check(correlation_id: int, key: Any, partition: Any, throttle_ms: int) -> None:
        types = schema.response_types(ApiKey.PRODUCE, version)
        topics = [(key, [partition])]
        message = types.ProduceResponse(
            responses=[produce_topic(types, key, [partition], {})], throttle_time=throttle_ms
        )
        assert produce.encode_response(version, correlation_id, topics, throttle_ms) == encoded(
            ApiKey.PRODUCE, version, correlation_id, message
        )

    check()


def produce_topic(types: Any, key: Any, partitions: Any, leaders: Any) -> Any:
    return types.TopicProduceResponse(
        name=key,
        topic_id=key,
        partition_responses=[
            types.PartitionProduceResponse(
                index=index,
                error_code=code,
                base_offset=base_offset,
                log_append_time=as_time(append_time),
                log_start_offset=start_offset,
                record_errors=[
                    types.BatchIndexAndErrorMessage(
                        batch_index=number, batch_index_error_message=text
                    )
                    for number, text in errors or ()
                ],
                error_message=message,
                current_leader=leader_and_epoch(types, leaders.get((key, index))),
            )
            for index, code, base_offset, append_time, start_offset, errors, message in partitions
        ],
    )


def leader_and_epoch(types: Any, leader: Any) -> Any:
    leader_id, leader_epoch = leader or (-1, -1)
    return types.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def node_endpoint(types: Any, node_id: int, host: str, port: int, rack: str | None) -> Any:
    return types.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)


# --- Fetch ------------------------------------------------------------------------------------


class BytesFile:
    """A file of known content behind a region."""

    generation = 0

    def __init__(self, content: bytes) -> None:
        self.content = content

    def pin(self) -> int:
        raise AssertionError("the encoder never opens a file")

    def unpin(self) -> None:
        raise AssertionError("the encoder never opens a file")

    def peek(self, length: int, position: int) -> bytes | None:
        raise AssertionError("the encoder never reads a file")

    def is_resident(self, position: int, length: int) -> bool:
        raise AssertionError("the encoder never reads a file")


def flat(piece: Any) -> bytes:
    if piece is None:
        return b""
    if isinstance(piece, FileRegion):
        content: bytes = piece.file.content  # type: ignore[attr-defined]
        return content[piece.position : piece.position + piece.length]
    if isinstance(piece, list):
        return b"".join(map(flat, piece))
    return bytes(piece)


@st.composite
def regions(draw: Any) -> FileRegion:
    content = draw(st.binary(min_size=1, max_size=200))
    position = draw(st.integers(0, len(content) - 1))
    length = draw(st.integers(1, len(content) - position))
    return FileRegion(BytesFile(content), 0, position, length)


PIECES = st.binary(max_size=200) | st.binary(max_size=200).map(memoryview) | regions()
PAIRS = st.tuples(INT64, INT64)
FETCH_RESULTS = st.builds(
    fetch.FetchPartitionResult,
    partition=INT32,
    error_code=ERRORS,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted=st.none() | st.lists(PAIRS, max_size=3),
    preferred_read_replica=INT32,
    records=st.none() | PIECES | st.lists(PIECES, max_size=3),
    current_leader=st.none() | st.tuples(INT32, INT32).filter(lambda pair: pair != (-1, -1)),
    diverging_epoch=st.none() | st.tuples(INT32, INT64).filter(lambda pair: pair != (-1, -1)),
)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(version: int) -> None:
    @settings(max_examples=20, deadline=None)
    @given(INT32, topics_of(version, 13, FETCH_RESULTS), INT32, ERRORS, INT32, NODES)
    def check(
        correlation_id: int,
        topics: Any,
        throttle_ms: int,
        error_code: int,
        session_id: int,
        nodes: Any,
    ) -> None:
        types = schema.response_types(ApiKey.FETCH, version)
        message = types.FetchResponse(
            throttle_time=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            responses=[
                types.FetchableTopicResponse(
                    topic=key,
                    topic_id=key,
                    partitions=[fetch_partition(types, result) for result in results],
                )
                for key, results in topics
            ],
            node_endpoints=[node_endpoint(types, *node) for node in nodes],
        )
        pieces = fetch.encode_response(
            version, correlation_id, throttle_ms, error_code, session_id, topics, nodes
        )
        assert flat(pieces) == encoded(ApiKey.FETCH, version, correlation_id, message)
        assert type(pieces[0]) is bytes
        assert not any(
            isinstance(first, bytes) and isinstance(second, bytes)
            for first, second in itertools.pairwise(pieces)
        )
        assert all(flat(piece) for piece in pieces)

    check()


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_of_nothing_new(version: int) -> None:
    plain = st.builds(
        fetch.FetchPartitionResult,
        partition=INT32,
        error_code=ERRORS,
        high_watermark=INT64,
        last_stable_offset=INT64,
        log_start_offset=INT64,
        aborted=st.none() | st.just(()),
        preferred_read_replica=INT32,
    )

    @settings(max_examples=20, deadline=None)
    @given(INT32, st.uuids() if version >= 13 else TEXT, st.lists(plain, min_size=1, max_size=3))
    def check(correlation_id: int, key: Any, results: Any) -> None:
        types = schema.response_types(ApiKey.FETCH, version)
        topic = types.FetchableTopicResponse(
            topic=key, topic_id=key, partitions=[fetch_partition(types, part) for part in results]
        )
        message = types.FetchResponse(
            throttle_time=0, error_code=0, session_id=0, responses=[topic]
        )
        assert fetch.encode_response(version, correlation_id, 0, 0, 0, [(key, results)]) == [
            encoded(ApiKey.FETCH, version, correlation_id, message)
        ]

    check()


def fetch_partition(types: Any, result: fetch.FetchPartitionResult) -> Any:
    epoch, end_offset = result.diverging_epoch or (-1, -1)
    aborted = result.aborted
    return types.PartitionData(
        partition_index=result.partition,
        error_code=result.error_code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=types.EpochEndOffset(epoch=epoch, end_offset=end_offset),
        current_leader=leader_and_epoch(types, result.current_leader),
        aborted_transactions=None
        if aborted is None
        else [types.AbortedTransaction(producer_id=pid, first_offset=off) for pid, off in aborted],
        preferred_read_replica=result.preferred_read_replica,
        records=flat(result.records),
    )


# --- ListOffsets ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(version: int) -> None:
    partitions = st.tuples(INT32, ERRORS, INT64, INT64, INT32)

    @settings(max_examples=20, deadline=None)
    @given(INT32, INT32, topics_of(version, 99, partitions))
    def check(correlation_id: int, throttle_ms: int, topics: Any) -> None:
        types = schema.response_types(ApiKey.LIST_OFFSETS, version)
        message = types.ListOffsetsResponse(
            throttle_time=throttle_ms,
            topics=[
                types.ListOffsetsTopicResponse(
                    name=name,
                    partitions=[
                        types.ListOffsetsPartitionResponse(
                            partition_index=index,
                            error_code=code,
                            timestamp=timestamp,
                            offset=offset,
                            leader_epoch=leader_epoch,
                        )
                        for index, code, timestamp, offset, leader_epoch in parts
                    ],
                )
                for name, parts in topics
            ],
        )
        assert list_offsets.encode_response(
            version, correlation_id, throttle_ms, topics
        ) == encoded(ApiKey.LIST_OFFSETS, version, correlation_id, message)

    check()


# --- Metadata ---------------------------------------------------------------------------------

IDS = st.lists(INT32, max_size=3).map(tuple)
METADATA_PARTITIONS = st.builds(
    metadata.MetadataPartition,
    partition=INT32,
    leader_id=INT32,
    leader_epoch=INT32,
    replicas=IDS,
    isr=IDS,
    offline_replicas=IDS,
    error_code=ERRORS,
)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(version: int) -> None:
    topic_strategy = st.builds(
        metadata.MetadataTopic,
        name=NULLABLE_TEXT if version >= 12 else TEXT,
        topic_id=st.none() | st.uuids(),
        partitions=st.lists(METADATA_PARTITIONS, max_size=3),
        error_code=ERRORS,
        is_internal=st.booleans(),
        authorized_operations=INT32,
    )

    @settings(max_examples=20, deadline=None)
    @given(
        INT32,
        INT32,
        NODES,
        NULLABLE_TEXT,
        INT32,
        st.lists(topic_strategy, max_size=3),
        INT32,
        ERRORS,
    )
    def check(
        correlation_id: int,
        throttle_ms: int,
        nodes: Any,
        cluster_id: str | None,
        controller_id: int,
        topics: Any,
        operations: int,
        error_code: int,
    ) -> None:
        types = schema.response_types(ApiKey.METADATA, version)
        message = types.MetadataResponse(
            throttle_time=throttle_ms,
            brokers=[
                types.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in nodes
            ],
            cluster_id=cluster_id,
            controller_id=controller_id,
            topics=[metadata_topic(types, topic) for topic in topics],
            cluster_authorized_operations=operations,
            error_code=error_code,
        )
        layout = metadata.fragment_layout(version)
        fragments = [metadata.encode_topic_fragment(layout, topic) for topic in topics]
        if all(topic.name is not None for topic in topics):
            assert fragments == [metadata.encode_topic_fragment(version, t) for t in topics]
        fragments = [metadata.encode_topic_fragment(version, topic) for topic in topics]
        assert metadata.encode_response(
            version,
            correlation_id,
            throttle_ms,
            nodes,
            cluster_id,
            controller_id,
            fragments,
            operations,
            error_code,
        ) == encoded(ApiKey.METADATA, version, correlation_id, message)

    check()


def metadata_topic(types: Any, topic: metadata.MetadataTopic) -> Any:
    topic_id: UUID | None = topic.topic_id
    return types.MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id,
        is_internal=topic.is_internal,
        partitions=[
            types.MetadataResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=partition.offline_replicas,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=topic.authorized_operations,
    )
