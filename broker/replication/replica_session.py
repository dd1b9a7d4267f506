"""A follower's fetch session, as its leader keeps it: a request costs what has changed.

A request counts for every partition in the session, named or not. Those that have everything and are in the
ISR are *at rest*: the session's ``Pulse`` counts for all of them at once, and nobody looks at them. A partition
where anything changes rouses them (``on_change``); they are *loud* until they have found rest again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.model.ids import BrokerId
from broker.protocol.hot.fetch import FetchPartition, FetchRequest
from broker.replication.fetch_session import FetchSession, SessionPartition, TopicKey
from broker.replication.follower_state import Pulse

if TYPE_CHECKING:
    from broker.replication.delayed import DelayedFetch
    from broker.replication.replicated_partition import ReplicatedPartition

#: A connection has one session, so any number but 0 will do.
SESSION_ID: Final = 1


class ReplicaEntry(SessionPartition):
    """One partition of it, and what that partition calls when there is news."""

    __slots__ = ("is_resting", "roused_in", "session", "watched")

    def __init__(self, session: ReplicaSession, topic: TopicKey, wanted: FetchPartition) -> None:
        super().__init__(topic, wanted)
        self.session = session
        #: Whose changes it hears of.
        self.watched: ReplicatedPartition | None = None
        self.is_resting = False
        #: The session's epoch in which its rest ended: the request of then has counted for it.
        self.roused_in = -1

    def rest(self) -> None:
        self.is_resting = True
        self.session.loud.pop(self, None)

    def on_change(self) -> None:
        """What was found at the last look may not be so any more."""
        self.quiet_version = -1
        if self.is_resting:
            self.is_resting = False
            session = self.session
            self.roused_in = session.epoch
            session.loud[self] = None
            session.has_news = True

    def wake(self) -> None:
        """There is something to be sent: a request that waits looks for it."""
        session = self.session
        session.has_news = True
        if session.waiters:
            for waiter in tuple(session.waiters):
                waiter.wake()

    def rouse(self) -> None:
        if self.is_resting and self.watched is not None:
            self.watched.rouse()

    def leave(self) -> None:
        """The follower has forgotten it."""
        self.rouse()
        self.session.loud.pop(self, None)
        if self.watched is not None:
            self.watched.unwatch(self.session.replica_id, self)
            self.watched = None


class ReplicaSession(FetchSession):
    """What a follower fetches over one connection."""

    __slots__ = (
        "answer_sent_ms",
        "has_news",
        "loud",
        "pulse",
        "replica_epoch",
        "replica_id",
        "waiters",
    )

    def __init__(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> None:
        super().__init__(SESSION_ID, uses_topic_ids, now_ms)
        self.replica_id = BrokerId(request.replica_id)
        self.replica_epoch = request.replica_epoch
        #: When the answer was sent that the next request shows to have arrived.
        self.answer_sent_ms: int | None = None
        #: Those to be looked at, in the order in which they are read.
        self.loud: dict[ReplicaEntry, None] = {}
        self.pulse = Pulse()
        #: The request that waits, if one does.
        self.waiters: set[DelayedFetch] = set()
        #: Something has come since the last look began.
        self.has_news = False

    def apply(self, request: FetchRequest) -> None:
        """Before the request counts: what it names, or forgets, is at rest no more."""
        partitions = self.partitions
        for topic, wanted_partitions in request.topics:
            for wanted in wanted_partitions:
                key = (topic, wanted.partition)
                known = partitions.get(key)
                if known is None:
                    entry = ReplicaEntry(self, topic, wanted)
                    partitions[key] = entry
                    self.loud[entry] = None
                else:
                    assert isinstance(known, ReplicaEntry)
                    known.rouse()
                    known.update(wanted)
        for topic, indexes in request.forgotten:
            for index in indexes:
                gone = partitions.pop((topic, index), None)
                if gone is not None:
                    assert isinstance(gone, ReplicaEntry)
                    gone.leave()

    def rouse_all(self) -> None:
        for entry in tuple(self.partitions.values()):
            assert isinstance(entry, ReplicaEntry)
            entry.rouse()

    def rotate(self, keys: Iterable[tuple[TopicKey, int]]) -> None:
        for key in keys:
            entry = self.partitions.get(key)
            if isinstance(entry, ReplicaEntry) and entry in self.loud:
                del self.loud[entry]
                self.loud[entry] = None
