"""Answers a whole request with one error, in the layout of the request's own version.

Where a response has an error of its own at the top, it is told there; where it has not, on every
topic, partition or resource that the request names, as Kafka does. What the request was is needed
for the latter: without it (it could not be decoded) the answer names nothing.

    frame = error_response(header.api_key, header.api_version, header.correlation_id,
                           ErrorCode.UNKNOWN_SERVER_ERROR, request)

``request`` is what the API's decoder returned: a ``hot`` request for Produce, Fetch, ListOffsets and
Metadata, else a message of ``schema``. The caller keeps to the rule that Produce with ``acks=0`` is
never answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.model.error_code import ErrorCode
from broker.protocol import schema
from broker.protocol.admin_refusals import ADMIN_ANSWERS
from broker.protocol.api_versions import SERVED, ApiKey, is_served
from broker.protocol.hot import fetch, list_offsets, metadata, produce

#: JoinGroup has no place for a missing protocol before.
JOIN_WITH_NULL_PROTOCOL_FROM = 7
#: OffsetFetch has its error on each partition before.
FETCH_WITH_ERROR_ON_TOP_FROM = 2

#: ``(version, correlation id, error code, message, request)`` to the whole frame.
_Answer = Callable[[int, int, int, str | None, Any], bytes]


def error_response(
    api_key: int,
    version: int,
    correlation_id: int,
    code: int,
    request: Any = None,
    message: str | None = None,
) -> bytes:
    """The frame that refuses the request; the version must be served (ApiVersions: any version).

    ``message`` goes where the version has a place for it; an empty one is none.
    """
    message = message or None
    if api_key == ApiKey.API_VERSIONS and not is_served(api_key, version):
        return unsupported_api_versions(correlation_id)
    answer = _HOT.get(api_key)
    if answer is not None:
        return answer(version, correlation_id, code, message, request)
    response = _ANSWERS[api_key](schema.response_types(api_key, version), code, message, request)
    return schema.encode_response(api_key, version, correlation_id, response)


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The answer to ApiVersions at a version that is not served (KIP-511).

    Always of version 0, which any client can read, and with the versions of ApiVersions alone, so
    that the client asks again at one of them on the same connection.
    """
    key = ApiKey.API_VERSIONS
    types = schema.response_types(key, 0)
    served = SERVED[key]
    own = types.ApiVersion(
        api_key=int(key), min_version=served.min_version, max_version=served.max_version
    )
    response = types.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return schema.encode_response(key, 0, correlation_id, response)


# --- Hot requests -----------------------------------------------------------------------------


def _produce(
    version: int,
    correlation_id: int,
    code: int,
    message: str | None,
    request: produce.ProduceRequest | None,
) -> bytes:
    topics: list[produce.TopicResponse] = []
    for key, partitions in request.topics if request else ():
        topics.append((key, [(index, code, -1, -1, -1, None, message) for index, _ in partitions]))
    return produce.encode_response(version, correlation_id, topics)


def _fetch(
    version: int,
    correlation_id: int,
    code: int,
    _message: str | None,
    request: fetch.FetchRequest | None,
) -> bytes:
    """Clients that know topic ids read the error at the top; older ones want it on each partition."""
    topics: list[fetch.TopicResult] = []
    if request and version < fetch.TOPIC_ID_FROM:
        for key, partitions in request.topics:
            results = [
                fetch.FetchPartitionResult(partition.partition, code, aborted=())
                for partition in partitions
            ]
            topics.append((key, results))
    session_id = request.session_id if request else fetch.NO_SESSION
    pieces = fetch.encode_response(version, correlation_id, 0, code, session_id, topics)
    frame = pieces[0]
    assert isinstance(frame, bytes)
    assert len(pieces) == 1, "an error has no records"
    return frame


def _list_offsets(
    version: int,
    correlation_id: int,
    code: int,
    _message: str | None,
    request: list_offsets.ListOffsetsRequest | None,
) -> bytes:
    topics = [
        (name, [(index, code, -1, -1, -1) for index, _, _ in partitions])
        for name, partitions in (request.topics if request else ())
    ]
    return list_offsets.encode_response(version, correlation_id, 0, topics)


def _metadata(
    version: int,
    correlation_id: int,
    code: int,
    _message: str | None,
    request: metadata.MetadataRequest | None,
) -> bytes:
    named = (request.topics if request else None) or []
    fragments = [
        metadata.encode_topic_fragment(version, metadata.MetadataTopic(name, topic_id, (), code))
        for topic_id, name in named
    ]
    return metadata.encode_response(
        version, correlation_id, 0, (), None, -1, fragments, error_code=code
    )


_HOT: dict[int, _Answer] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
}


# --- The rest ---------------------------------------------------------------------------------
# One function per API: (types of the version, error code, message, request) to the response.


def _find_coordinator(types: Any, code: int, message: str | None, request: Any) -> Any:
    # Coordinator builds nothing, and its array is dropped, before version 4 (KIP-699).
    coordinators = [
        types.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
        )
        for key in getattr(request, "coordinator_keys", ())
    ]
    return types.FindCoordinatorResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        node_id=-1,
        host="",
        port=-1,
        coordinators=coordinators,
    )


def _offset_commit(types: Any, code: int, _message: str | None, request: Any) -> Any:
    topics = _committed(
        types.OffsetCommitResponseTopic, types.OffsetCommitResponsePartition, code, request
    )
    return types.OffsetCommitResponse(throttle_time=0, topics=topics)


def _committed(topic_type: Any, partition_type: Any, code: int, request: Any) -> list[Any]:
    """The error on each partition whose offset was to be committed."""
    return [
        topic_type(
            **_topic_key(topic),
            partitions=[
                partition_type(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in (request.topics if request else ())
    ]


def _topic_key(topic: Any) -> dict[str, Any]:
    """Name or id, whichever the version has."""
    if hasattr(topic, "topic_id"):
        return {"topic_id": topic.topic_id}
    return {"name": topic.name}


def _offset_fetch(types: Any, code: int, _message: str | None, request: Any) -> Any:
    # Version 1 has the error on each partition only; versions 2 to 7 on top; from 8 on each group.
    topics = [
        types.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                types.OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=code,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in (getattr(request, "topics", None) or ())
        if types.version < FETCH_WITH_ERROR_ON_TOP_FROM
    ]
    groups = [
        types.OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
        for group in getattr(request, "groups", ())
    ]
    return types.OffsetFetchResponse(throttle_time=0, topics=topics, error_code=code, groups=groups)


def _join_group(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.JoinGroupResponse(
        throttle_time=0,
        error_code=code,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if types.version >= JOIN_WITH_NULL_PROTOCOL_FROM else "",
        leader="",
        skip_assignment=False,
        member_id="",
        members=(),
    )


def _sync_group(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.SyncGroupResponse(
        throttle_time=0, error_code=code, protocol_type=None, protocol_name=None, assignment=b""
    )


def _heartbeat(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.HeartbeatResponse(throttle_time=0, error_code=code)


def _leave_group(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.LeaveGroupResponse(throttle_time=0, error_code=code, members=())


def _describe_groups(types: Any, code: int, message: str | None, request: Any) -> Any:
    groups = [
        types.DescribedGroup(
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
        )
        for group_id in (request.groups if request else ())
    ]
    return types.DescribeGroupsResponse(throttle_time=0, groups=groups)


def _list_groups(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.ListGroupsResponse(throttle_time=0, error_code=code, groups=())


def _delete_groups(types: Any, code: int, message: str | None, request: Any) -> Any:
    results = [
        types.DeletableGroupResult(group_id=group_id, error_code=code, error_message=message)
        for group_id in (request.groups_names if request else ())
    ]
    return types.DeleteGroupsResponse(throttle_time=0, results=results)


def _offset_delete(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.OffsetDeleteResponse(error_code=code, throttle_time=0, topics=())


def _sasl_handshake(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.SaslHandshakeResponse(error_code=code, mechanisms=())


def _api_versions(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.ApiVersionsResponse(error_code=code, api_keys=(), throttle_time=0)


def _init_producer_id(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.InitProducerIdResponse(
        throttle_time=0, error_code=code, producer_id=-1, producer_epoch=-1
    )


def _offset_for_leader_epoch(types: Any, code: int, _message: str | None, request: Any) -> Any:
    topics = [
        types.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                types.EpochEndOffset(error_code=code, partition=partition.partition)
                for partition in topic.partitions
            ],
        )
        for topic in (request.topics if request else ())
    ]
    return types.OffsetForLeaderEpochResponse(throttle_time=0, topics=topics)


def _add_partitions_to_txn(types: Any, code: int, _message: str | None, request: Any) -> Any:
    """Each partition has the error before version 4, which has a place for it at the top."""
    topics = [
        types.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                types.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code
                )
                for index in topic.partitions
            ],
        )
        for topic in getattr(request, "v3_and_below_topics", ())
    ]
    return types.AddPartitionsToTxnResponse(
        throttle_time=0,
        error_code=code,
        results_by_transaction=(),
        results_by_topic_v3_and_below=topics,
    )


def _add_offsets_to_txn(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.AddOffsetsToTxnResponse(throttle_time=0, error_code=code)


def _end_txn(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.EndTxnResponse(throttle_time=0, error_code=code)


def _write_txn_markers(types: Any, code: int, _message: str | None, request: Any) -> Any:
    markers = [
        types.WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                types.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        types.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=code
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in (request.markers if request else ())
    ]
    return types.WriteTxnMarkersResponse(markers=markers)


def _txn_offset_commit(types: Any, code: int, _message: str | None, request: Any) -> Any:
    topics = _committed(
        types.TxnOffsetCommitResponseTopic, types.TxnOffsetCommitResponsePartition, code, request
    )
    return types.TxnOffsetCommitResponse(throttle_time=0, topics=topics)


def _describe_transactions(types: Any, code: int, _message: str | None, request: Any) -> Any:
    states = [
        types.TransactionState(
            error_code=code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=0,
            transaction_start_time=0,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
        for transactional_id in (request.transactional_ids if request else ())
    ]
    return types.DescribeTransactionsResponse(throttle_time=0, transaction_states=states)


def _list_transactions(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.ListTransactionsResponse(
        throttle_time=0, error_code=code, unknown_state_filters=(), transaction_states=()
    )


def _describe_producers(types: Any, code: int, message: str | None, request: Any) -> Any:
    topics = [
        types.TopicResponse(
            name=topic.name,
            partitions=[
                types.PartitionResponse(
                    partition_index=index,
                    error_code=code,
                    error_message=message,
                    active_producers=(),
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in (request.topics if request else ())
    ]
    return types.DescribeProducersResponse(throttle_time=0, topics=topics)


def _consumer_group_heartbeat(types: Any, code: int, message: str | None, _request: Any) -> Any:
    return types.ConsumerGroupHeartbeatResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval=0,
        assignment=None,
    )


def _consumer_group_describe(types: Any, code: int, message: str | None, request: Any) -> Any:
    groups = [
        types.DescribedGroup(
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )
        for group_id in (request.group_ids if request else ())
    ]
    return types.ConsumerGroupDescribeResponse(throttle_time=0, groups=groups)


_ANSWERS: dict[int, Callable[[Any, int, str | None, Any], Any]] = {
    **ADMIN_ANSWERS,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
}
