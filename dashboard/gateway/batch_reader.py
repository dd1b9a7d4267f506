"""Reads record batches as they lie in a cluster's logs: bytes, of many partitions at once.

Up to the last stable offset, so that every transaction among them has ended, with the markers that say
how; nothing is decompressed, decoded or left out. No group, and never creates a topic. One fetch
a broker is under way at a time. Needs a broker of version 0.11 or newer, which all that KIP-896 leaves are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition
from dashboard.gateway.async_client import client_failures, connection_options

FETCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_BYTES: Final = 4 * 1024 * 1024
WAIT_MS: Final = 500
READ_COMMITTED: Final = 1
MOST_PARTITIONS: Final = 500
"""Of one request; the others have their turn in the next."""


class BatchSlice(NamedTuple):
    """What a partition's leader gave from ``position`` on: whole batches, and maybe a part of one."""

    partition: TopicPartition
    position: int
    error: ErrorCode
    data: bytes
    last_stable_offset: int
    log_start_offset: int
    was_first: bool
    """The request asked it first, so that no bytes mean that there are none."""


class BatchReader:
    """One cluster, over connections of its own. For one event loop."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        *,
        fetch_bytes: int = FETCH_BYTES,
        timeout_ms: int = 30_000,
    ) -> None:
        self._fetch_bytes = fetch_bytes
        self._client: Any = AIOKafkaClient(
            bootstrap_servers=[server.strip() for server in bootstrap.split(",")],
            client_id="odradek-import",
            request_timeout_ms=timeout_ms,
            retry_backoff_ms=200,
            **connection_options(properties),
        )

    async def start(self, topics: set[str]) -> None:
        with client_failures():
            await self._client.bootstrap()
            await self._client.set_topics(topics)

    async def close(self) -> None:
        await self._client.close()

    async def look_again(self) -> None:
        """Leaders have changed: learn who leads now."""
        with client_failures():
            await self._client.force_metadata_update()

    def leader(self, partition: TopicPartition) -> int | None:
        """The broker that leads it, as far as is known."""
        leader = self._client.cluster.leader_for_partition(partition)
        return leader if leader is not None and leader >= 0 else None

    async def fetch(
        self, node_id: int, positions: Mapping[TopicPartition, int]
    ) -> list[BatchSlice]:
        """One fetch from one broker: what lies at these positions, in this order while room lasts."""
        asked = dict(list(positions.items())[:MOST_PARTITIONS])
        topics: dict[str, list[tuple[int, int, int]]] = {}
        first = next(iter(asked))
        for partition, position in asked.items():
            topics.setdefault(partition.topic, []).append(
                (partition.partition, position, min(PARTITION_BYTES, self._fetch_bytes))
            )
        request = FetchRequest(WAIT_MS, 1, self._fetch_bytes, READ_COMMITTED, list(topics.items()))
        with client_failures():
            answer = await self._client.send(node_id, request)
        if getattr(answer, "error_code", 0):
            return [
                BatchSlice(each, at, ErrorCode(answer.error_code), b"", -1, -1, False)
                for each, at in asked.items()
            ]
        return [
            _slice(TopicPartition(topic, fields[0]), fields, asked, first)
            for topic, partitions in answer.topics
            for fields in partitions
        ]


def _slice(
    partition: TopicPartition,
    fields: tuple[Any, ...],
    asked: Mapping[TopicPartition, int],
    first: TopicPartition,
) -> BatchSlice:
    # From version 5 on the log start offset stands between, from 11 on a preferred replica.
    log_start = fields[4] if len(fields) > 6 else -1
    return BatchSlice(
        partition,
        asked[partition],
        _error(fields[1]),
        fields[-1] or b"",
        fields[3],
        log_start,
        partition == first,
    )


def _error(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
