"""What a broker answers to others of its cluster: the image that it is controller of, topics that they
want made, ISRs that leaders propose, markers and questions of transactions, what is imported, the time. See ``private_wire`` for the frames and the proof that comes first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.image_codec import encode_update
from broker.metadata.image_feed import ImageVersion
from broker.metadata.requests import AlteredIsr, CreatedTopic, NewTopic
from broker.model.ids import BrokerId
from broker.protocol.request import RequestHeader
from broker.server.cluster.isr_wire import decode_proposals, encode_altered
from broker.server.cluster.private_wire import (
    VERSION,
    PrivateKey,
    Proving,
    encode_answer,
    is_proof,
    proof,
    split_body,
)
from broker.server.connection import Answer, CloseConnection, Connection, ResponseSlot

if TYPE_CHECKING:
    from broker.server.cluster.membership import Membership

#: A pull with nothing new is answered after so long, so that a dead connection is noticed.
LONG_POLL_SECONDS: Final = 3.0
#: Pulls that wait: one a broker, and some of connections that are gone.
MAX_WAITING: Final = 1000


class _WaitingPull:
    __slots__ = ("correlation_id", "known", "slot", "timer")

    def __init__(self, known: ImageVersion, slot: ResponseSlot, correlation_id: int) -> None:
        self.known = known
        self.slot = slot
        self.correlation_id = correlation_id
        self.timer: asyncio.TimerHandle | None = None


class PrivateApis:
    """Everything on the loop."""

    def __init__(self, membership: Membership, loop: asyncio.AbstractEventLoop) -> None:
        self._membership = membership
        self._loop = loop
        self._pulls: list[_WaitingPull] = []
        self._later: dict[int, Callable[[Connection, RequestHeader, dict[str, Any]], None]] = {
            PrivateKey.CREATE_TOPICS: self._create_topics,
            PrivateKey.LEAVE: self._leave,
            PrivateKey.ALTER_ISR: self._alter_isr,
            PrivateKey.WRITE_MARKERS: self._write_markers,
            PrivateKey.ASK_TRANSACTION: self._answer_transaction,
        }

    def serve(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> Answer | None:
        """Raises CloseConnection at whoever is no member, or speaks another version."""
        if header.api_version != VERSION:
            raise CloseConnection(f"private API {header.api_key} version {header.api_version}")
        try:
            if header.api_key == PrivateKey.IMPORT:
                if is_stranger(connection):
                    raise CloseConnection("a private API, by a stranger")
                self._import(connection, header, *split_body(frame[header.body_offset :]))
                return None
            body = json.loads(bytes(frame[header.body_offset :]))
            if header.api_key == PrivateKey.PROVE:
                return self._answer(header, self._prove(connection, body))
            if is_stranger(connection):
                raise CloseConnection("a private API, by a stranger")
            if header.api_key == PrivateKey.TELL_TIME:
                return self._answer(header, {"wall_ms": self._membership.wall_ms()})
            if header.api_key == PrivateKey.PULL_IMAGE:
                return self._pull(connection, header, body)
            if header.api_key == PrivateKey.REFUSAL:
                self._membership.refusals.on_told(body)
                return self._answer(header, {})
            answer_later = self._later.get(header.api_key)
            if answer_later is not None:
                answer_later(connection, header, body)
                return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CloseConnection(f"private API {header.api_key}: {error!r}") from error
        raise CloseConnection(f"there is no private API {header.api_key}")

    def _answer(self, header: RequestHeader, body: dict[str, Any]) -> Answer:
        return [encode_answer(header.correlation_id, json.dumps(body).encode())]

    def _prove(self, connection: Connection, body: dict[str, Any]) -> dict[str, Any]:
        if "nonce" in body:
            connection.proving = Proving(str(body["nonce"]))
            return {"nonce": connection.proving.own_nonce}
        proving = connection.proving
        if proving is None:
            raise CloseConnection("a proof without a nonce")
        nonces = (proving.caller_nonce, proving.own_nonce)
        secret = self._membership.secret
        if not is_proof(body["proof"], proof(secret, "caller", *nonces)):
            raise CloseConnection("a broker that does not know the cluster's secret")
        proving.is_proved = True
        return {"proof": proof(secret, "called", *nonces)}

    # Images ------------------------------------------------------------------------------------

    def _pull(
        self, connection: Connection, header: RequestHeader, body: dict[str, Any]
    ) -> Answer | None:
        if len(self._pulls) >= MAX_WAITING:
            raise CloseConnection("too many pulls of the image wait")
        known = ImageVersion(int(body["epoch"]), int(body["version"]))
        pull = _WaitingPull(known, connection.defer(header), header.correlation_id)
        pull.timer = self._loop.call_later(LONG_POLL_SECONDS, self._end, pull, b"")
        pull.slot.on_cancel = lambda: self._forget(pull)
        self._pulls.append(pull)
        self._loop.call_soon(self.on_image)
        return None

    def on_image(self) -> None:
        """There may be news for whoever waits."""
        feed = self._membership.feed
        if feed is None:
            return
        for pull in tuple(self._pulls):
            update = feed.update_for(pull.known)
            if update is not None:
                self._end(pull, encode_update(update))

    def _end(self, pull: _WaitingPull, data: bytes) -> None:
        self._forget(pull)
        pull.slot.complete([encode_answer(pull.correlation_id, data)])

    def _forget(self, pull: _WaitingPull) -> None:
        if pull in self._pulls:
            self._pulls.remove(pull)
        if pull.timer is not None:
            pull.timer.cancel()

    # Topics ------------------------------------------------------------------------------------

    def _create_topics(
        self, connection: Connection, header: RequestHeader, body: dict[str, Any]
    ) -> None:
        topics = [
            NewTopic(
                str(name),
                int(count),
                int(factor),
                (),
                [(str(key), value) for key, value in configs],
            )
            for name, count, factor, configs in body["topics"]
        ]
        slot = connection.defer(header)

        def created(results: list[CreatedTopic]) -> None:
            told = {"errors": [int(result.error) for result in results]}
            slot.complete(self._answer(header, told))

        self._membership.controller.create_topics(topics, False, created)

    # Brokers that stop -------------------------------------------------------------------------

    def _leave(self, connection: Connection, header: RequestHeader, body: dict[str, Any]) -> None:
        broker_id, broker_epoch = BrokerId(int(body["broker"])), int(body["epoch"])
        slot = connection.defer(header)

        def left(is_done: bool) -> None:
            slot.complete(self._answer(header, {"left": is_done}))

        self._membership.let_leave(broker_id, broker_epoch, left)

    # Transactions ------------------------------------------------------------------------------

    def _write_markers(
        self, connection: Connection, header: RequestHeader, body: dict[str, Any]
    ) -> None:
        slot = connection.defer(header)
        self._membership.transactions.begin_writing(
            body, lambda answer: slot.complete(self._answer(header, answer))
        )

    def _answer_transaction(
        self, connection: Connection, header: RequestHeader, body: dict[str, Any]
    ) -> None:
        slot = connection.defer(header)

        def answered(answer: dict[str, Any]) -> None:
            slot.complete(self._answer(header, answer))

        self._membership.transactions.begin_answering(body, answered)

    # Imports -----------------------------------------------------------------------------------

    def _import(
        self,
        connection: Connection,
        header: RequestHeader,
        body: dict[str, Any],
        batches: bytearray,
    ) -> None:
        slot = connection.defer(header)
        self._membership.imports.begin_answering(
            body, batches, lambda answer: slot.complete(self._answer(header, answer))
        )

    # ISRs --------------------------------------------------------------------------------------

    def _alter_isr(
        self, connection: Connection, header: RequestHeader, body: dict[str, Any]
    ) -> None:
        asked = decode_proposals(body)
        slot = connection.defer(header)

        def altered(results: list[AlteredIsr]) -> None:
            slot.complete(self._answer(header, encode_altered(results)))

        self._membership.alter_isrs(asked, altered)


def is_stranger(connection: Connection) -> bool:
    """Has not proved that it knows the cluster's secret."""
    return connection.proving is None or not connection.proving.is_proved
