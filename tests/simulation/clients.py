"""An idempotent producer that never gives up, and a consumer that reads everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.requests import PartitionName, Reassignment, Result
from broker.model.error_code import ErrorCode
from broker.model.ids import NO_BROKER, BrokerId
from broker.records.builder import build_batch
from broker.records.record import Record
from tests.simulation.broker import TOPIC, Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.cluster import Cluster

_BROKEN_SEQUENCE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


class Metadata:
    """Of a client: the leader of the highest leader epoch that any broker told it of."""

    def __init__(self, cluster: Cluster, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._topic = topic
        self.leader_epoch = -1
        self.leader_id = NO_BROKER

    def refresh(self) -> BrokerId:
        running = self._cluster.running()
        if running:
            image = self._cluster.world.rng.choice(running).image
            partition = image.partition(self._topic, 0)
            if partition is not None and partition.leader_epoch >= self.leader_epoch:
                self.leader_epoch = partition.leader_epoch
                self.leader_id = partition.leader_id
        return self.leader_id


class Producer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._metadata = Metadata(cluster)
        self.number = -1
        self._producer_id = 1000
        self._sequence = 0
        self._excuses = 0
        #: Of the present attempt: what is acknowledged by somebody whose loss was excused meanwhile does not count.
        self._excuses_at_send = 0
        self._batch = b""
        self.has_produced_since_healing = False
        cluster.world.call_later(200, self._next)

    def _next(self) -> None:
        self.number += 1
        self._make_batch()
        self._send()

    def _make_batch(self) -> None:
        record = Record(0, 1_700_000_000_000, None, b"%d" % self.number)
        self._batch = bytes(
            build_batch(
                [record],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
        )

    def _send(self) -> None:
        leader_id = self._metadata.refresh()
        self._excuses_at_send = self._cluster.checker.excuse_count

        def serve(to: Process, answer: Callable[[ErrorCode], None]) -> None:
            to.partitions[TOPIC].serve_produce(self._batch, answer)

        self._cluster.client_request(leader_id, serve, self._ended, timeout_ms=1200)

    def _ended(self, error: ErrorCode | None) -> None:
        cluster = self._cluster
        if error is ErrorCode.NONE:
            if self._excuses_at_send == cluster.checker.excuse_count:
                cluster.checker.acknowledged.append(self.number)
            self.has_produced_since_healing = cluster.is_healed
            self._sequence += 1
            cluster.world.call_later(cluster.settings.produce_every_ms, self._next)
            return
        if error in _BROKEN_SEQUENCE:
            if self._excuses == cluster.checker.excuse_count:
                cluster.checker.fail(f"I1: {error.name} of record {self.number}")
            self._excuses = cluster.checker.excuse_count
            self._producer_id += 1
            self._sequence = 0
            self._make_batch()
        cluster.world.call_later(30, self._send)


class Operator:
    """Moves the partition from broker to broker, and now and then back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.world.call_later(2000, self._reassign)

    def _reassign(self) -> None:
        cluster, rng = self._cluster, self._cluster.world.rng
        if cluster.is_healed:
            return
        is_election = rng.random() < 0.3
        target: tuple[BrokerId, ...] | None = None
        if rng.random() < 0.8:
            target = tuple(rng.sample(cluster.broker_ids, rng.choice((2, 2, 3))))

        def serve(to: Process, answer: Callable[[Result], None]) -> None:
            if to.term is not None and is_election:
                to.term.controller.elect_leaders(
                    [PartitionName(TOPIC, 0)], lambda results: answer(results[0])
                )
            elif to.term is not None:
                cluster.world.tell(f"reassign to {target}")
                to.term.controller.reassign(
                    [Reassignment(TOPIC, 0, target)], lambda results: answer(results[0])
                )

        def ended(result: Result | None) -> None:
            cluster.world.call_later(rng.randrange(300, 3000), self._reassign)

        cluster.client_request(cluster.controller_id(), serve, ended, timeout_ms=500)


class Consumer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._metadata = Metadata(cluster)
        cluster.world.call_later(250, self._read)

    def _read(self) -> None:
        leader_id = self._metadata.refresh()
        offset = self._cluster.checker.consumer_offset

        def serve(to: Process, answer: Callable[[tuple[int, int, bytes] | None], None]) -> None:
            hosted = to.partitions[TOPIC]
            leader = hosted.leader
            if leader is None or not leader.is_settled:
                answer(None)
                return
            high_watermark = leader.high_watermark
            data = hosted.read(offset, high_watermark) if offset < high_watermark else b""
            answer((leader.leader_epoch, high_watermark, data))

        self._cluster.client_request(leader_id, serve, self._ended, timeout_ms=500)

    def _ended(self, answer: tuple[int, int, bytes] | None) -> None:
        if answer is not None and answer[0] >= self._metadata.leader_epoch:
            self._metadata.leader_epoch = answer[0]
            self._cluster.checker.on_read(*answer)
        self._cluster.world.call_later(120, self._read)
