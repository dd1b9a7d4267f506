"""The few requests that the client library has no call for, on a plain socket of our own.

Sizes of logs, leader epochs and eligible replicas, settings by name, and cluster-wide broker
defaults are asked here, encoded by ``kio``. Only unencrypted listeners without SASL are spoken
to; the gateway leaves these answers out elsewhere ("not told by this cluster"). One connection
a broker, one request at a time, blocking with a timeout.
"""

from __future__ import annotations

import io
import socket
import struct
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import kio.schema.describe_configs.v4.request as describe_configs_request
import kio.schema.describe_configs.v4.response as describe_configs_response
import kio.schema.describe_log_dirs.v2.request as log_dirs_request
import kio.schema.describe_log_dirs.v2.response as log_dirs_response
import kio.schema.describe_topic_partitions.v0.request as topic_partitions_request
import kio.schema.describe_topic_partitions.v0.response as topic_partitions_response
import kio.schema.incremental_alter_configs.v1.request as alter_configs_request
import kio.schema.incremental_alter_configs.v1.response as alter_configs_response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i8, i32

from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition
from dashboard.cluster import (
    ConfigChange,
    ConfigView,
    KafkaFailure,
    PartitionView,
    TopicView,
    config_view,
)

T = TypeVar("T")

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
DESCRIBE_LOG_DIRS = (35, 2)
DESCRIBE_CONFIGS = (32, 4)
INCREMENTAL_ALTER_CONFIGS = (44, 1)
DESCRIBE_TOPIC_PARTITIONS = (75, 0)

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Bound of one answer; log directories of 100,000 partitions take about 4 MB."""
PARTITIONS_PER_PAGE = 2000
CLIENT_ID = b"odradek"
RESOURCES_PER_REQUEST = 1000


class WireConnection:
    """A connection to one broker. Raises OSError when it breaks; then it is of no more use."""

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def set_timeout(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)

    def ask(self, request: Any, response_type: type[T]) -> T:
        """Send one request, wait for its answer."""
        self._correlation_id += 1
        self._socket.sendall(_frame(request, self._correlation_id))
        return _decode(self._answer(), response_type)

    def ask_raw(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        """As ``ask``, for messages that are encoded by hand; gives what follows the correlation id."""
        self._correlation_id += 1
        tags = b"\0" if is_flexible else b""
        head = struct.pack(">hhih", api_key, version, self._correlation_id, len(CLIENT_ID))
        message = head + CLIENT_ID + tags + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        return self._answer()[4 + len(tags) :]

    def _answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise OSError(f"an answer of {size} bytes is not plausible")
        return self._receive(size)

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(min(count - len(data), 1024 * 1024))
            if not piece:
                raise OSError("the broker closed the connection")
            data += piece
        return bytes(data)

    def log_sizes(self) -> dict[TopicPartition, int]:
        """Bytes of each partition that this broker holds, over all its log directories."""
        answer = self.ask(
            log_dirs_request.DescribeLogDirsRequest(topics=None),
            log_dirs_response.DescribeLogDirsResponse,
        )
        sizes: dict[TopicPartition, int] = {}
        for directory in answer.results:
            for topic in directory.topics:
                for log in topic.partitions:
                    if not log.is_future_key:
                        sizes[TopicPartition(topic.name, log.partition_index)] = log.partition_size
        return sizes

    def failed_directories(self) -> tuple[str, ...]:
        """This broker's log directories that it cannot serve any more."""
        answer = self.ask(
            log_dirs_request.DescribeLogDirsRequest(topics=()),
            log_dirs_response.DescribeLogDirsResponse,
        )
        return tuple(each.log_dir for each in answer.results if each.error_code.value)

    def topics(self, names: Collection[str]) -> dict[str, TopicView | KafkaFailure]:
        """Topics with everything that the controller knows of their partitions."""
        found: dict[str, TopicView | KafkaFailure] = {}
        partitions: dict[str, list[PartitionView]] = {}
        cursor: Any = None
        requested = tuple(
            topic_partitions_request.TopicRequest(name=TopicName(name)) for name in sorted(names)
        )
        while requested:
            answer = self.ask(
                topic_partitions_request.DescribeTopicPartitionsRequest(
                    topics=requested,
                    response_partition_limit=i32(PARTITIONS_PER_PAGE),
                    cursor=cursor,
                ),
                topic_partitions_response.DescribeTopicPartitionsResponse,
            )
            for topic in answer.topics:
                name = str(topic.name)
                if topic.error_code.value:
                    found[name] = failure_of(topic.error_code.value, None)
                    continue
                partitions.setdefault(name, []).extend(map(_partition_view, topic.partitions))
                found[name] = TopicView(
                    name, topic_id_text(topic.topic_id), topic.is_internal, tuple(partitions[name])
                )
            if answer.next_cursor is None:
                break
            previous = cursor
            cursor = topic_partitions_request.Cursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )
            if cursor == previous:
                raise OSError("the broker's answer does not get any further")
            requested = tuple(t for t in requested if t.name >= cursor.topic_name)
        return found

    def describe_configs(
        self, resource_type: int, names: Sequence[str], keys: Sequence[str] | None
    ) -> dict[str, list[ConfigView] | KafkaFailure]:
        """Settings of several resources; only the named keys unless ``keys`` is None."""
        found: dict[str, list[ConfigView] | KafkaFailure] = {}
        for start in range(0, len(names), RESOURCES_PER_REQUEST):
            resources = tuple(
                describe_configs_request.DescribeConfigsResource(
                    resource_type=i8(resource_type),
                    resource_name=name,
                    configuration_keys=None if keys is None else tuple(keys),
                )
                for name in names[start : start + RESOURCES_PER_REQUEST]
            )
            answer = self.ask(
                describe_configs_request.DescribeConfigsRequest(
                    resources=resources, include_synonyms=True
                ),
                describe_configs_response.DescribeConfigsResponse,
            )
            for result in answer.results:
                if result.error_code.value:
                    outcome: list[ConfigView] | KafkaFailure = failure_of(
                        result.error_code.value, result.error_message
                    )
                else:
                    outcome = [
                        config_view(
                            entry,
                            entry.config_source,
                            is_read_only=entry.read_only,
                            synonyms=entry.synonyms,
                        )
                        for entry in result.configs
                    ]
                found[result.resource_name] = outcome
        return found

    def alter_configs(
        self,
        resource_type: int,
        changes: Mapping[str, Iterable[ConfigChange]],
        *,
        validate_only: bool,
    ) -> dict[str, KafkaFailure | None]:
        """Change settings by name of resource; None where it was accepted."""
        resources = tuple(
            alter_configs_request.AlterConfigsResource(
                resource_type=i8(resource_type),
                resource_name=name,
                configs=tuple(
                    alter_configs_request.AlterableConfig(
                        name=change.name,
                        config_operation=i8(change.operation),
                        value=change.value,
                    )
                    for change in of_name
                ),
            )
            for name, of_name in changes.items()
        )
        answer = self.ask(
            alter_configs_request.IncrementalAlterConfigsRequest(
                resources=resources, validate_only=validate_only
            ),
            alter_configs_response.IncrementalAlterConfigsResponse,
        )
        return {
            result.resource_name: (
                failure_of(result.error_code.value, result.error_message)
                if result.error_code.value
                else None
            )
            for result in answer.responses
        }


def topic_id_text(topic_id: uuid.UUID | None) -> str | None:
    """A topic id as Kafka prints it: 22 characters of URL-safe base64."""
    import base64

    if topic_id is None:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def failure_of(code: int, message: str | None) -> KafkaFailure:
    """A failure under Kafka's own name of the error."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"ERROR_{code}"
    return KafkaFailure(name, message or name.lower().replace("_", " "))


def _frame(request: Any, correlation_id: int) -> bytes:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id="odradek",
    )
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _decode(body: bytes, response_type: type[T]) -> T:
    """Raises OSError for an answer that cannot be read: whoever asked may ask in another way."""
    header_type: Any = response_type.__header_schema__  # type: ignore[attr-defined]
    reader: Any = entity_reader(response_type)
    entity: T
    try:
        _, header_size = entity_reader(header_type)(body, 0)
        entity, _ = reader(body, header_size)
    except (SerialError, ValueError) as error:
        raise OSError(f"an answer that makes no sense: {error}") from None
    return entity


def _partition_view(
    partition: topic_partitions_response.DescribeTopicPartitionsResponsePartition,
) -> PartitionView:
    leader = int(partition.leader_id)
    return PartitionView(
        index=partition.partition_index,
        leader=leader if leader >= 0 else None,
        leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
        replicas=tuple(map(int, partition.replica_nodes)),
        isr=tuple(map(int, partition.isr_nodes)),
        eligible_leader_replicas=_ids(partition.eligible_leader_replicas),
        last_known_eligible_leader_replicas=_ids(partition.last_known_elr),
    )


def _ids(nodes: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if nodes is None else tuple(map(int, nodes))
