"""Transactions over several brokers: the coordinator's markers go to the leaders of partitions, and these ask
the coordinator whether a partition is in a transaction, or add it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId, TopicPartition
from broker.model.transaction_marker import TransactionMarker
from broker.server.cluster.marker_sender import MarkerSender
from broker.server.cluster.peer import PeerError
from broker.server.cluster.peer_pool import PeerPool
from broker.server.cluster.private_wire import PrivateKey
from broker.server.cluster.transaction_wire import (
    Sender,
    SentMarker,
    decode_codes,
    decode_markers,
    decode_question,
    encode_codes,
    encode_question,
)

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

#: What is not committed by then is told as not done, so that others need not wait; it is repeated.
COMMIT_SECONDS: Final = 2.0
#: How long a topic that the image does not have is waited for: a coordinator may know partitions from its
#: log before the image comes that has them.
UNKNOWN_SECONDS: Final = 5.0

Done = Callable[[ErrorCode], None]


class ClusterTransactions:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership
        self._pool = PeerPool(membership)
        self._senders: dict[BrokerId, MarkerSender] = {}
        #: Of each broker, the last registration and connection by which markers came.
        self._newest: dict[BrokerId, tuple[int, int]] = {}

    # Markers of our coordinator ----------------------------------------------------------------

    def write_marker(
        self, marker: TransactionMarker, topic_partition: TopicPartition, done: Done
    ) -> None:
        """``done`` once it is committed, or refused, where the partition is led."""
        found = self._membership.image.partition(*topic_partition)
        if found is None:
            self._broker.loop.call_later(UNKNOWN_SECONDS, self._give_up, topic_partition, done)
        elif found.leader_id == self._membership.broker_id:
            self._broker.transactions.markers.write_here(
                marker, topic_partition, partial(self._on_written_here, done)
            )
        elif found.leader_id == NO_BROKER:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            sent = SentMarker(marker, topic_partition, found.leader_epoch)
            self._sender(found.leader_id).send(sent, done)

    def _give_up(self, topic_partition: TopicPartition, done: Done) -> None:
        is_gone = self._membership.image.partition(*topic_partition) is None
        done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _on_written_here(self, done: Done, code: ErrorCode) -> None:
        """The image alone says that a topic is gone: what it has may not be served yet."""
        done(_not_yet(code))

    def _sender(self, leader_id: BrokerId) -> MarkerSender:
        sender = self._senders.get(leader_id)
        if sender is None:
            sender = self._senders[leader_id] = MarkerSender(self._membership, leader_id)
            self._broker.tasks.keep(
                sender.run, f"send markers to broker {leader_id}", is_vital=True
            )
        return sender

    # Markers of others -------------------------------------------------------------------------

    def begin_writing(self, body: dict[str, Any], done: Callable[[dict[str, Any]], None]) -> None:
        """Raises ValueError, KeyError or TypeError at what is none, or comes too late."""
        sender, markers = decode_markers(body)
        self._note(sender)
        codes: dict[int, ErrorCode] = {}
        is_over = False

        def finish() -> None:
            nonlocal is_over
            is_over = True
            timer.cancel()
            late = ErrorCode.REQUEST_TIMED_OUT
            done(encode_codes([codes.get(number, late) for number in range(len(markers))]))

        def written(number: int, code: ErrorCode) -> None:
            codes[number] = _not_yet(code)
            if len(codes) == len(markers) and not is_over:
                finish()

        timer = self._broker.loop.call_later(COMMIT_SECONDS, finish)
        if not markers:
            finish()
        for number, each in enumerate(markers):
            self._write(each, partial(written, number))

    def _note(self, sender: Sender) -> None:
        came_by = (sender.broker_epoch, sender.connection)
        if came_by < self._newest.get(sender.broker_id, came_by):
            raise ValueError("markers by a connection that has a successor")
        self._newest[sender.broker_id] = came_by

    def _write(self, sent: SentMarker, done: Done) -> None:
        try:
            partition = self._broker.replicas.find(*sent.topic_partition)
        except KafkaError as error:
            done(error.code)
            return
        if partition.leader_epoch != sent.leader_epoch:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._broker.transactions.markers.write_here(sent.marker, sent.topic_partition, done)

    # Questions to a coordinator ----------------------------------------------------------------

    async def ask(
        self,
        coordinator_id: BrokerId,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> list[ErrorCode]:
        """One code for each partition."""
        body = encode_question(producer, partitions, adds)
        try:
            answer = await self._pool.ask_json(coordinator_id, PrivateKey.ASK_TRANSACTION, body)
            return decode_codes(answer, len(partitions))
        except (PeerError, ValueError, KeyError, TypeError):
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(partitions)

    def begin_answering(self, body: dict[str, Any], done: Callable[[dict[str, Any]], None]) -> None:
        """To the leader of partitions. Raises ValueError, KeyError or TypeError."""
        producer, partitions, adds = decode_question(body)
        coordinator = self._broker.transactions.coordinator

        def told(code: ErrorCode) -> None:
            done(encode_codes([code] * len(partitions)))

        if not adds:
            try:
                codes = coordinator.verify(producer, partitions)
            except KafkaError as error:
                told(error.code)
            else:
                done(encode_codes(codes))
            return
        image = self._membership.image
        if any(image.partition(*each) is None for each in partitions):
            told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # our image is behind the leader's
        else:
            coordinator.add_partitions(producer, partitions, told, RAISES_EPOCH)


def _not_yet(code: ErrorCode) -> ErrorCode:
    """A broker that leads a partition by the image may not serve it yet."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
