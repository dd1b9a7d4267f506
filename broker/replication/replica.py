"""One partition on this broker, in whatever role the cluster's image gives it.

``on_state`` is told of every image that names the partition; only a newer leader epoch changes the
role. What the last fetch was, and when, outlives the role: a new leader's lease depends on it.
"""

from __future__ import annotations

from typing import TypeAlias

from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.replication.follower import FollowerMachine
from broker.replication.leader import BrokerEpochs, LeaderMachine, ReplicationRules
from broker.replication.lease import Lease, not_before_ms
from broker.replication.replica_fetch import ReplicaFetch
from broker.replication.replica_log import ReplicaLog


class FetchClock:
    """When the last request of a fetch session was sent: a fetch for all that is in it, named or not."""

    __slots__ = ("sent_ms",)

    def __init__(self) -> None:
        self.sent_ms = 0


Role: TypeAlias = LeaderMachine | FollowerMachine | None


class Replica:
    """See the module's docstring. ``role`` is None while nobody leads, or nothing is known."""

    leader_type = LeaderMachine
    follower_type = FollowerMachine

    def __init__(
        self, broker_id: BrokerId, log: ReplicaLog, rules: ReplicationRules, started_ms: int
    ) -> None:
        self._broker_id = broker_id
        self.log = log
        self.rules = rules
        self.role: Role = None
        self.leader_epoch = -1
        #: Of the process at first: what it sent in an earlier life it does not remember.
        self._last_fetch_sent_ms = started_ms
        #: Of the session that it was last in, in this role.
        self.fetch_clock: FetchClock | None = None

    def on_state(self, state: LeaderAndIsr, epochs: BrokerEpochs, now_ms: int) -> bool:
        """Gives whether the role is a new one: who waited for the old one is to be told so."""
        if state.leader_epoch < self.leader_epoch:
            return False
        if state.leader_epoch == self.leader_epoch:
            if isinstance(self.role, LeaderMachine):
                self.role.on_state(state, epochs)
            return False
        self.leader_epoch = state.leader_epoch
        self._read_fetch_clock()
        if state.leader_id == NO_BROKER:
            self.role = None
        elif state.leader_id == self._broker_id:
            lease = Lease(
                self.rules.lease_ms, not_before_ms(self._last_fetch_sent_ms, self.rules.lease_ms)
            )
            self.role = self.leader_type(
                self._broker_id, state, self.log, self.rules, lease, now_ms
            )
        else:
            self.role = self.follower_type(
                self._broker_id, state, self.log, self.rules.is_flush_bound
            )
        return True

    def _read_fetch_clock(self) -> None:
        """The role ends: what the session sends from here on is no fetch for this partition."""
        clock, self.fetch_clock = self.fetch_clock, None
        if clock is not None:
            self._last_fetch_sent_ms = max(self._last_fetch_sent_ms, clock.sent_ms)

    def on_removed(self) -> bool:
        """The partition has no replica here any more; gives whether it had a role. The log may go."""
        had_role, self.role = self.role is not None, None
        self.leader_epoch = -1  # or it would not follow again within the same one
        return had_role

    def next_fetch(self, broker_epoch: int, now_ms: int) -> ReplicaFetch | None:
        if not isinstance(self.role, FollowerMachine):
            return None
        fetch = self.role.next_fetch(broker_epoch)
        if fetch is not None:
            self._last_fetch_sent_ms = now_ms
        return fetch
