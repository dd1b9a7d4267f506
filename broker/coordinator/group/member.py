"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable

from broker.coordinator.group.records import StoredMember
from broker.coordinator.group.requests import AnswerJoin, AnswerSync, DescribedMember, Protocol

NO_ASSIGNMENT = b""


class Member:
    """``answer_join`` and ``answer_sync`` are set while the member waits for such an answer."""

    __slots__ = (
        "answer_join",
        "answer_sync",
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.answer_join: AnswerJoin | None = None
        self.answer_sync: AnswerSync | None = None
        #: It has not been answered yet: it cannot send heartbeats, and may be gone already.
        self.is_new = False

    @classmethod
    def restored(cls, stored: StoredMember, protocol_name: str) -> Member:
        return cls(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            (Protocol(protocol_name, stored.subscription),),
            stored.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.answer_join is not None

    @property
    def may_be_silent(self) -> bool:
        """It waits for us, so its session does not run out."""
        return not self.is_new and (self.answer_join is not None or self.answer_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"{self.member_id} does not offer {protocol_name}")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that everybody has."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(f"{self.member_id} offers none of {candidates}")

    def stored(self, protocol_name: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )

    def described(self, metadata: bytes) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            metadata,
            self.assignment,
        )
