"""Metadata (key 3), versions 0-13.

Behaviour: no list of topics means all of them (in version 0 an empty list does, G16). An unknown
name is created when the request and ``auto.create.topics.enable`` allow it, and the answer waits for
that, so that a client's first write finds its leader. Illegal names are INVALID_TOPIC_EXCEPTION
(G18), unknown ids UNKNOWN_TOPIC_ID. Authorised operations are told only when asked for (G17).

Hot path: every client asks; a topic's bytes are kept per layout until its image changes
(``FragmentCache``), so a large answer is one ``join``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from broker.metadata.image import TopicImage
from broker.metadata.topic_names import why_illegal
from broker.model.error_code import ErrorCode
from broker.model.internal_topics import is_internal
from broker.protocol.hot.metadata import (
    OPERATIONS_NOT_TOLD,
    MetadataPartition,
    MetadataRequest,
    MetadataTopic,
    decode_request,
    encode_response,
    encode_topic_fragment,
    fragment_layout,
)
from broker.server.handlers.cluster import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from broker.server.tasks import Slices

if TYPE_CHECKING:
    from broker.protocol.request import RequestHeader
    from broker.server.app import Broker
    from broker.server.connection import Answer, Connection, ResponseSlot

NAMELESS_FROM = 12
#: Topics encoded anew in one turn of the loop.
TOPICS_PER_SLICE = 200


class FragmentCache:
    """Encoded topics by (layout, operations told?); an entry is good while its image is the same."""

    def __init__(self) -> None:
        self._by_layout: dict[tuple[int, bool], dict[str, tuple[TopicImage, bytes]]] = {}

    def get(self, version: int, topic: TopicImage, with_operations: bool) -> bytes:
        fragments = self._by_layout.setdefault((fragment_layout(version), with_operations), {})
        known = fragments.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        fragment = encode_topic_fragment(version, _describe(topic, with_operations))
        fragments[topic.name] = (topic, fragment)
        return fragment

    def is_known(self, version: int, topic: TopicImage, with_operations: bool) -> bool:
        fragments = self._by_layout.get((fragment_layout(version), with_operations))
        known = fragments.get(topic.name) if fragments is not None else None
        return known is not None and known[0] is topic

    def forget(self, name: str) -> None:
        for fragments in self._by_layout.values():
            fragments.pop(name, None)


def _describe(topic: TopicImage, with_operations: bool) -> MetadataTopic:
    return MetadataTopic(
        topic.name,
        topic.topic_id,
        [
            MetadataPartition(
                partition.index,
                partition.leader_id,
                partition.leader_epoch,
                partition.replicas,
                tuple(sorted(partition.isr)),
            )
            for partition in topic.partitions
        ],
        is_internal=is_internal(topic.name),
        authorized_operations=ALL_TOPIC_OPERATIONS if with_operations else OPERATIONS_NOT_TOLD,
    )


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> Answer | None:
    version = header.api_version
    request = decode_request(version, frame, header.body_offset)
    missing = _to_create(broker, request)
    if not missing and _new_fragments(broker, version, request) <= TOPICS_PER_SLICE:
        return [_answer(broker, connection, header, request)]
    slot = connection.defer(header)
    broker.dispatcher.spawn(
        slot, _answer_later(broker, connection, header, request, missing, slot), "Metadata"
    )
    return None


async def _answer_later(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    missing: list[str],
    slot: ResponseSlot,
) -> None:
    if missing:
        await broker.create_missing_topics(missing)
    with_operations = request.include_topic_authorized_operations
    for topic in Slices(_wanted(broker, request), TOPICS_PER_SLICE):
        if topic is None:
            await broker.next_turn()
        else:
            broker.fragments.get(header.api_version, topic, with_operations)
    slot.complete([_answer(broker, connection, header, request)])


def _to_create(broker: Broker, request: MetadataRequest) -> list[str]:
    if (
        request.topics is None
        or not request.allow_auto_topic_creation
        or not broker.config.auto_create_topics_enable
    ):
        return []
    known = broker.image.topics
    return [
        name
        for _, name in request.topics
        if name is not None and name not in known and why_illegal(name) is None
    ]


def _wanted(broker: Broker, request: MetadataRequest) -> list[TopicImage]:
    """The topics of the answer that exist."""
    image = broker.image
    if request.topics is None:
        return list(image.topics.values())
    found = []
    for topic_id, name in request.topics:
        topic = _find(broker, topic_id, name)
        if topic is not None:
            found.append(topic)
    return found


def _new_fragments(broker: Broker, version: int, request: MetadataRequest) -> int:
    with_operations = request.include_topic_authorized_operations
    return sum(
        len(topic.partitions)
        for topic in _wanted(broker, request)
        if not broker.fragments.is_known(version, topic, with_operations)
    )


def _find(broker: Broker, topic_id: UUID | None, name: str | None) -> TopicImage | None:
    if topic_id is not None:
        return broker.image.topics_by_id.get(topic_id)
    return broker.image.topics.get(name) if name is not None else None


def _answer(
    broker: Broker, connection: Connection, header: RequestHeader, request: MetadataRequest
) -> bytes:
    version = header.api_version
    with_operations = request.include_topic_authorized_operations
    fragments: list[bytes] = []
    if request.topics is None:
        for topic in broker.image.topics.values():
            fragments.append(broker.fragments.get(version, topic, with_operations))
    else:
        for topic_id, name in request.topics:
            found = _find(broker, topic_id, name)
            if found is not None:
                fragments.append(broker.fragments.get(version, found, with_operations))
            else:
                fragments.append(_missing(version, topic_id, name))
    with_cluster_operations = request.include_cluster_authorized_operations
    return encode_response(
        version,
        header.correlation_id,
        0,
        [(node.broker_id, node.host, node.port, node.rack) for node in broker.nodes(connection)],
        broker.cluster_id,
        broker.image.controller_id,
        fragments,
        ALL_CLUSTER_OPERATIONS if with_cluster_operations else OPERATIONS_NOT_TOLD,
    )


def _missing(version: int, topic_id: UUID | None, name: str | None) -> bytes:
    if topic_id is not None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        shown = None if version >= NAMELESS_FROM else ""
        return encode_topic_fragment(version, MetadataTopic(shown, topic_id, error_code=code))
    assert name is not None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if why_illegal(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return encode_topic_fragment(
        version, MetadataTopic(name, None, error_code=code, is_internal=is_internal(name))
    )
