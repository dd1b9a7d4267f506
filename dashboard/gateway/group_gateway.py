"""What a cluster is asked and told about consumer groups.

Where plain sockets can be used, many groups go into one request; elsewhere the library asks for
each. A coordinator that is just being found or still loads is asked again until the timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition

from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard import group_wire
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.gateway.cluster_link import ClusterLink
from dashboard.gateway.translate import (
    failure_of_error,
    group_view,
    library_failures,
    listed_group,
)
from dashboard.groups import CommittedOffset, GroupListing, GroupView
from dashboard.wire import WireConnection

T = TypeVar("T")
Commits = dict[TopicPartition, CommittedOffset]
Ask = Callable[[WireConnection, Collection[str], BrokerView], Mapping[str, "T | KafkaFailure"]]

GROUPS_PER_REQUEST = 500
FUTURES_AT_ONCE = 200
"""The library sends all it is given at once, and its timeouts run from then on."""
PAUSE_S = 0.1
_WAIT_CODES = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)


class GroupGateway:
    """Consumer groups of one cluster."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    # What exists

    def listings(self) -> list[GroupListing]:
        """All consumer groups, sorted by name."""
        with library_failures():
            found = self._list_by_wire()
            if found is None:
                found = self._list_by_library()
        return sorted(found, key=lambda listing: listing.group)

    def describe(self, groups: Sequence[str]) -> dict[str, GroupView | KafkaFailure]:
        """Members and state. A group that does not exist is GROUP_ID_NOT_FOUND."""
        if not groups:
            return {}
        with library_failures():
            if self._link.serves(group_wire.DESCRIBE_GROUPS) and self._can_find():
                found = self._by_wire(groups, self.describe_by_wire)
            else:
                found = self._describe_by_library(groups)
        return {name: existing(found[name]) for name in groups}

    def committed(self, groups: Sequence[str]) -> dict[str, Commits | KafkaFailure]:
        """Committed offsets; empty for a group that has none or does not exist."""
        if not groups:
            return {}
        with library_failures():
            if self._link.serves(group_wire.OFFSET_FETCH) and self._can_find():
                found = self._by_wire(groups, _committed_by_wire)
            else:
                found = self._committed_by_library(groups)
        return {name: found[name] for name in groups}

    # Changes

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaFailure | None]:
        """Commit offsets in the name of a group that has no members."""
        found: dict[TopicPartition, KafkaFailure | None] = {}
        left = dict(offsets)
        for _ in self._tries():
            found |= self._alter(group, left)
            left = {key: at for key, at in left.items() if _has_to_wait(found[key])}
            if not left:
                break
        return found

    def _alter(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaFailure | None]:
        request = ConsumerGroupTopicPartitions(
            group, [ClientPartition(*key, at) for key, at in sorted(offsets.items())]
        )
        with library_failures():
            futures = self._link.admin().alter_consumer_group_offsets(
                [request], request_timeout=self._link.timeout_s
            )
            outcome = self._link.outcomes(futures)[group]
        if isinstance(outcome, KafkaFailure):
            return dict.fromkeys(offsets, outcome)
        return {
            TopicPartition(done.topic, done.partition): (
                None if done.error is None else failure_of_error(done.error)
            )
            for done in outcome.topic_partitions
        }

    def bring_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaFailure | None]:
        """As ``alter_offsets``, with metadata; what metadata holds is its writer's affair."""
        if not self._link.serves(group_wire.OFFSET_COMMIT) or not self._can_find():
            return self.alter_offsets(group, {key: at.offset for key, at in offsets.items()})

        def ask(
            connection: WireConnection, names: Collection[str], _: BrokerView
        ) -> dict[str, dict[TopicPartition, KafkaFailure | None] | KafkaFailure]:
            (name,) = names
            found = group_wire.commit_offsets(connection, name, offsets)
            waits = next((failure for failure in found.values() if _has_to_wait(failure)), None)
            return {name: found if waits is None else waits}

        with library_failures():
            outcome = self._by_wire([group], ask)[group]
        return dict.fromkeys(offsets, outcome) if isinstance(outcome, KafkaFailure) else outcome

    def delete(self, groups: Sequence[str]) -> dict[str, KafkaFailure | None]:
        """Delete groups without members, and what they have committed."""
        found: dict[str, KafkaFailure | None] = {}
        left = list(groups)
        for _ in self._tries():
            with library_failures():
                futures = self._link.admin().delete_consumer_groups(
                    left, request_timeout=self._link.timeout_s
                )
                found |= self._link.done(futures)
            left = [name for name in left if _has_to_wait(found[name])]
            if not left:
                break
        return {name: found[name] for name in groups}

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaFailure | None]:
        """Forget what was committed for these partitions."""
        wanted = list(partitions)
        if not self._link.serves(group_wire.OFFSET_DELETE) or not self._can_find():
            failure = KafkaFailure(
                "UNSUPPORTED_VERSION",
                "committed offsets can only be deleted over an unencrypted listener for now",
            )
            return dict.fromkeys(wanted, failure)

        def ask(
            connection: WireConnection, names: Collection[str], _: BrokerView
        ) -> dict[str, dict[TopicPartition, KafkaFailure | None] | KafkaFailure]:
            (name,) = names
            try:
                return {name: group_wire.delete_offsets(connection, name, wanted)}
            except KafkaFailure as failure:
                return {name: failure}

        with library_failures():
            outcome = self._by_wire([group], ask)[group]
        return dict.fromkeys(wanted, outcome) if isinstance(outcome, KafkaFailure) else outcome

    # By plain sockets

    def _can_find(self) -> bool:
        return self._link.serves(group_wire.FIND_COORDINATOR)

    def _by_wire(self, groups: Sequence[str], ask: Ask[T]) -> dict[str, T | KafkaFailure]:
        """Ask every group's coordinator; groups whose coordinator is not ready, again."""
        found: dict[str, T | KafkaFailure] = {}
        left = list(dict.fromkeys(groups))
        for _ in self._tries():
            by_coordinator, failures = self._coordinators(left)
            found |= failures
            for coordinator, names in by_coordinator.items():
                with self._link.connect((coordinator.host, coordinator.port)) as connection:
                    for chunk in _chunks(names, GROUPS_PER_REQUEST):
                        found |= ask(connection, chunk, coordinator)
            left = [name for name in left if _has_to_wait(found[name])]
            if not left:
                break
        return found

    def _tries(self) -> Iterator[bool]:
        """Once, and again while the timeout lasts; tells whether it is the last time."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + int(self._link.timeout_s * 1000)
        is_last = False
        while not is_last:
            is_last = clock.monotonic_ms() >= deadline_ms
            yield is_last
            time.sleep(PAUSE_S)

    def _coordinators(
        self, groups: Sequence[str]
    ) -> tuple[dict[BrokerView, list[str]], dict[str, KafkaFailure]]:
        by_coordinator: dict[BrokerView, list[str]] = {}
        failures: dict[str, KafkaFailure] = {}
        with self._link.connect() as connection:
            for chunk in _chunks(groups, GROUPS_PER_REQUEST):
                for name, outcome in group_wire.find_coordinators(connection, chunk).items():
                    if isinstance(outcome, KafkaFailure):
                        failures[name] = outcome
                    else:
                        by_coordinator.setdefault(outcome, []).append(name)
        return by_coordinator, failures

    def _list_by_wire(self) -> list[GroupListing] | None:
        if not self._link.serves(group_wire.LIST_GROUPS):
            return None
        found: dict[str, GroupListing] = {}
        for broker in self._link.brokers():
            for listed in self._list_of(broker):
                found[listed.group] = replace(listed, coordinator=broker.broker_id)
        return list(found.values())

    def _list_of(self, broker: BrokerView) -> list[GroupListing]:
        with_types = self._link.serves(group_wire.LIST_GROUPS_WITH_TYPES)
        for is_last in self._tries():
            try:
                with self._link.connect((broker.host, broker.port)) as connection:
                    return group_wire.list_groups(connection, with_types=with_types)
            except KafkaFailure as failure:
                if is_last or not _has_to_wait(failure):
                    raise
        return []

    def describe_by_wire(
        self, connection: WireConnection, groups: Collection[str], coordinator: BrokerView
    ) -> dict[str, GroupView | KafkaFailure]:
        """Of this coordinator. Only the newer request knows the groups of the newer protocol, and
        no others."""
        found: dict[str, GroupView | KafkaFailure] = {}
        if self._link.serves(group_wire.CONSUMER_GROUP_DESCRIBE):
            found = group_wire.describe_consumer(connection, groups, coordinator)
        left = [name for name in groups if not isinstance(found.get(name), GroupView)]
        if left:
            found |= group_wire.describe_classic(connection, left, coordinator)
        return found

    # By the library

    def _list_by_library(self) -> list[GroupListing]:
        future = self._link.admin().list_consumer_groups(request_timeout=self._link.timeout_s)
        (outcome,) = self._link.outcomes({0: future}).values()
        if isinstance(outcome, KafkaFailure):
            raise outcome
        for error in outcome.errors:
            raise failure_of_error(error)
        return [listed_group(listing) for listing in outcome.valid]

    def _describe_by_library(self, groups: Sequence[str]) -> dict[str, GroupView | KafkaFailure]:
        found: dict[str, GroupView | KafkaFailure] = {}
        for chunk in _chunks(groups, FUTURES_AT_ONCE):
            futures = self._link.admin().describe_consumer_groups(
                list(chunk), request_timeout=self._link.timeout_s
            )
            found |= {
                name: outcome if isinstance(outcome, KafkaFailure) else group_view(outcome)
                for name, outcome in self._link.outcomes(futures).items()
            }
        return found

    def _committed_by_library(self, groups: Sequence[str]) -> dict[str, Commits | KafkaFailure]:
        found: dict[str, Commits | KafkaFailure] = {}
        for chunk in _chunks(groups, FUTURES_AT_ONCE):
            futures: dict[str, Any] = {}
            for name in chunk:
                # The library takes one group a call.
                asked = [ConsumerGroupTopicPartitions(name)]
                futures |= self._link.admin().list_consumer_group_offsets(
                    asked, request_timeout=self._link.timeout_s
                )
            for name, outcome in self._link.outcomes(futures).items():
                found[name] = (
                    outcome
                    if isinstance(outcome, KafkaFailure)
                    else {
                        TopicPartition(at.topic, at.partition): CommittedOffset(
                            at.offset, at.leader_epoch, at.metadata
                        )
                        for at in outcome.topic_partitions
                        if at.error is None and at.offset >= 0
                    }
                )
        return found


def _committed_by_wire(
    connection: WireConnection, groups: Collection[str], _: BrokerView
) -> dict[str, Commits | KafkaFailure]:
    return group_wire.committed_offsets(connection, groups)


def _has_to_wait(outcome: object) -> bool:
    return isinstance(outcome, KafkaFailure) and outcome.code in _WAIT_CODES


def existing(outcome: GroupView | KafkaFailure) -> GroupView | KafkaFailure:
    """Brokers have told a group that does not exist as an empty dead one for a long time."""
    if isinstance(outcome, GroupView) and outcome.state == "Dead":
        return KafkaFailure("GROUP_ID_NOT_FOUND", "there is no such group")
    return outcome


def _chunks(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
