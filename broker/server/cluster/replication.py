"""Replicas over several brokers: who fetches for those that are followed, who proposes their ISRs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.ids import BrokerId
from broker.replication.followed_partition import FollowedPartition
from broker.replication.throttle import ReplicationThrottle
from broker.server.cluster.isr_changes import IsrChanges
from broker.server.cluster.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership


class Replication:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership
        self._isr_changes = IsrChanges(broker, membership)
        now_ms = broker.clock.monotonic_ms()
        #: Of what is served to followers that are not in sync, and of what is fetched for replicas
        #: that are not.
        self.leader_throttle = ReplicationThrottle(
            lambda: broker.config.leader_replication_throttled_rate, now_ms
        )
        self.follower_throttle = ReplicationThrottle(
            lambda: broker.config.follower_replication_throttled_rate, now_ms
        )
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}

    def start(self) -> None:
        """Before any role is taken."""
        replicas = self._broker.replicas
        replicas.on_followed = self._follow
        replicas.on_isr_wanted = self._isr_changes.look_at
        self._isr_changes.start()

    def on_controller(self) -> None:
        """It is another one now."""
        self._isr_changes.on_controller()

    def _follow(self, followed: FollowedPartition) -> None:
        leader_id = followed.leader_id
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._broker, self._membership, leader_id)
            self._fetchers[leader_id] = fetcher
            self._broker.tasks.keep(fetcher.run, f"fetch from broker {leader_id}", is_vital=True)
        fetcher.add(followed)
