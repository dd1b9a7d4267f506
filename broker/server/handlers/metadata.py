"""Metadata (key 3), versions 0-13.

Behaviour: no list of topics means all of them (in version 0 an empty list does, G16). An unknown
name is created when the request and ``auto.create.topics.enable`` allow it, and the answer waits for
that, so that a client's first write finds its leader. Illegal names are INVALID_TOPIC_EXCEPTION
(G18), unknown ids UNKNOWN_TOPIC_ID. Authorised operations are told only when asked for (G17).

Hot path: every client asks; a topic's bytes are kept per layout until its image changes
(``FragmentCache``), so a large answer is one ``join``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.topic_names import why_illegal
from broker.model.error_code import ErrorCode
from broker.model.ids import NO_BROKER, BrokerId
from broker.model.internal_topics import is_internal
from broker.protocol.hot.metadata import (
    OPERATIONS_NOT_TOLD,
    MetadataPartition,
    MetadataRequest,
    MetadataTopic,
    decode_request,
    encode_partitions,
    encode_response,
    encode_topic_fragment,
    encode_topic_head,
    encode_topic_tail,
    fragment_layout,
)
from broker.server.handlers.cluster import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.protocol.request import RequestHeader
    from broker.server.app import Broker
    from broker.server.connection import Answer, Connection, ResponseSlot

NAMELESS_FROM: Final = 12
LEADERLESS: Final = ErrorCode.LEADER_NOT_AVAILABLE
#: An answer of more topics, or of more partitions that are not encoded yet, takes several turns.
TOPICS_AT_ONCE: Final = 500
PARTITIONS_AT_ONCE: Final = 200


class FragmentCache:
    """Encoded topics by (layout, operations told?); an entry is good while its image is the same, and
    no broker comes or goes: replicas of those that are not there are told as offline, and those that
    seem to have died this moment (``cluster/presence.py``) as leading nothing."""

    def __init__(self) -> None:
        self._by_layout: dict[tuple[int, bool], dict[str, tuple[TopicImage, bytes]]] = {}
        self._brokers: Container[BrokerId] | None = None
        self._doubted: frozenset[BrokerId] = frozenset()

    def on_brokers(self, brokers: Container[BrokerId]) -> None:
        self._brokers = brokers
        self._by_layout.clear()

    def on_doubted(self, doubted: frozenset[BrokerId]) -> None:
        self._doubted = doubted
        self._by_layout.clear()

    def get(self, version: int, topic: TopicImage, with_operations: bool) -> bytes:
        fragments = self._by_layout.setdefault((fragment_layout(version), with_operations), {})
        known = fragments.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        described = self._describe(topic, topic.partitions, with_operations)
        fragment = encode_topic_fragment(version, described)
        fragments[topic.name] = (topic, fragment)
        return fragment

    def get_in_steps(
        self, version: int, topic: TopicImage, with_operations: bool
    ) -> Iterator[bytes | None]:
        """As ``get``, for a topic of many partitions: None after each portion, then the bytes."""
        described = self._describe(topic, (), with_operations)
        layout = (fragment_layout(version), with_operations)
        # What comes between the portions may set all aside, and this one then, too.
        fragments = self._by_layout.setdefault(layout, {})
        parts = [encode_topic_head(version, described, len(topic.partitions))]
        for first in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
            portion = topic.partitions[first : first + PARTITIONS_AT_ONCE]
            parts.append(encode_partitions(version, self._describe_partitions(portion)))
            yield None
        parts.append(encode_topic_tail(version, described))
        fragment = b"".join(parts)
        fragments[topic.name] = (topic, fragment)
        yield fragment

    def is_known(self, version: int, topic: TopicImage, with_operations: bool) -> bool:
        fragments = self._by_layout.get((fragment_layout(version), with_operations))
        known = fragments.get(topic.name) if fragments is not None else None
        return known is not None and known[0] is topic

    def forget(self, name: str) -> None:
        for fragments in self._by_layout.values():
            fragments.pop(name, None)

    def _describe(
        self, topic: TopicImage, partitions: Sequence[PartitionImage], with_operations: bool
    ) -> MetadataTopic:
        return MetadataTopic(
            topic.name,
            topic.topic_id,
            self._describe_partitions(partitions),
            is_internal=is_internal(topic.name),
            authorized_operations=ALL_TOPIC_OPERATIONS if with_operations else OPERATIONS_NOT_TOLD,
        )

    def _describe_partitions(self, partitions: Sequence[PartitionImage]) -> list[MetadataPartition]:
        found = []
        for partition in partitions:
            is_led = partition.leader_id not in (NO_BROKER, *self._doubted)
            found.append(
                MetadataPartition(
                    partition.index,
                    partition.leader_id if is_led else NO_BROKER,
                    partition.leader_epoch,
                    partition.replicas,
                    tuple(sorted(partition.isr)),
                    offline_replicas=offline_replicas(partition, self._brokers),
                    error_code=ErrorCode.NONE if is_led else LEADERLESS,
                )
            )
        return found


def offline_replicas(
    partition: PartitionImage, brokers: Container[BrokerId] | None
) -> tuple[BrokerId, ...]:
    """Of brokers that are not there; ``brokers`` None: nothing is known of them."""
    if brokers is None:
        return ()
    return tuple(replica for replica in partition.replicas if replica not in brokers)


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> Answer | None:
    request = decode_request(header.api_version, frame, header.body_offset)
    return handle_decoded(broker, connection, header, request, frame)


def handle_decoded(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    frame: memoryview,
) -> Answer | None:
    if _is_small(broker, header.api_version, request) and not _to_create(broker, request):
        found = _fragments(broker, header.api_version, request)
        fragments = [fragment for fragment in found if fragment is not None]
        return [_encode(broker, connection, header, request, fragments)]
    slot = connection.defer(header)
    broker.dispatcher.spawn(
        slot, _answer_later(broker, connection, header, request, slot), "Metadata"
    )
    return None


async def _answer_later(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    slot: ResponseSlot,
) -> None:
    missing = _to_create(broker, request)
    if missing:
        await broker.create_missing_topics(missing)
    turn = Turn()
    fragments = []
    for fragment in _fragments(broker, header.api_version, request):
        if fragment is not None:
            fragments.append(fragment)
        if turn.is_over:
            await turn.pass_on()
    slot.complete([_encode(broker, connection, header, request, fragments)])


def _is_small(broker: Broker, version: int, request: MetadataRequest) -> bool:
    asked = len(broker.image.topics) if request.topics is None else len(request.topics)
    return (
        asked <= TOPICS_AT_ONCE and _new_partitions(broker, version, request) <= PARTITIONS_AT_ONCE
    )


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


def _new_partitions(broker: Broker, version: int, request: MetadataRequest) -> int:
    """How many have to be encoded for this answer."""
    with_operations = request.include_topic_authorized_operations
    image = broker.image
    if request.topics is None:
        topics: Iterable[TopicImage | None] = image.topics.values()
    else:
        topics = (_find(image, topic_id, name) for topic_id, name in request.topics)
    return sum(
        len(topic.partitions)
        for topic in topics
        if topic is not None and not broker.fragments.is_known(version, topic, with_operations)
    )


def _find(image: ClusterImage, topic_id: UUID | None, name: str | None) -> TopicImage | None:
    if topic_id is not None:
        return image.topics_by_id.get(topic_id)
    return image.topics.get(name) if name is not None else None


def _fragments(broker: Broker, version: int, request: MetadataRequest) -> Iterator[bytes | None]:
    """The topics of the answer, each as it is when its turn comes; None where others may have
    theirs before it goes on."""
    with_operations = request.include_topic_authorized_operations
    if request.topics is None:
        for each in list(broker.image.topics):
            topic = broker.image.topics.get(each)
            if topic is not None:
                yield from _known(broker, version, topic, with_operations)
        return
    for topic_id, name in request.topics:
        found = _find(broker.image, topic_id, name)
        if found is not None:
            yield from _known(broker, version, found, with_operations)
        else:
            yield _missing(version, topic_id, name)


def _known(
    broker: Broker, version: int, topic: TopicImage, with_operations: bool
) -> Iterator[bytes | None]:
    cache = broker.fragments
    is_large = len(topic.partitions) > PARTITIONS_AT_ONCE
    if is_large and not cache.is_known(version, topic, with_operations):
        yield from cache.get_in_steps(version, topic, with_operations)
        if broker.image.topics.get(topic.name) is not topic:
            cache.forget(topic.name)  # deleted or changed meanwhile
    else:
        yield cache.get(version, topic, with_operations)


def _encode(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    fragments: list[bytes],
) -> bytes:
    with_cluster_operations = request.include_cluster_authorized_operations
    return encode_response(
        header.api_version,
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
