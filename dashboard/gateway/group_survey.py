"""Asks for very many groups in small pieces: what the collector of the dashboard does at each tick.

Who lists a group is its coordinator, so nobody has to be found. One connection a coordinator; the
caller decides how many groups go into a piece and rests between them, since a broker answers
everybody else on the same thread. A coordinator that does not answer is a value. Where plain
sockets cannot be used, the library asks, group by group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from broker.model.ids import TopicPartition
from dashboard import group_wire
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.gateway.cluster_link import ClusterLink
from dashboard.gateway.group_gateway import GroupGateway, existing
from dashboard.gateway.translate import reason_of
from dashboard.groups import CommittedOffset, GroupListing, GroupView
from dashboard.wire import WireConnection

BROKERS_AT_ONCE = 8
VACANT = "Empty"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a coordinator told of one group; ``view`` None: it was not asked for its members."""

    view: GroupView | KafkaFailure | None
    committed: Mapping[TopicPartition, CommittedOffset] | KafkaFailure


class GroupSurvey:
    """Of one cluster. ``timeout_s`` is a coordinator's: shorter than the link's, for the sake of
    all other groups."""

    def __init__(self, link: ClusterLink, groups: GroupGateway) -> None:
        self._link = link
        self._groups = groups

    @property
    def is_by_wire(self) -> bool:
        return all(
            self._link.serves(request)
            for request in (
                group_wire.LIST_GROUPS,
                group_wire.DESCRIBE_GROUPS,
                group_wire.OFFSET_FETCH,
            )
        )

    def listings(
        self, brokers: Collection[BrokerView], timeout_s: float
    ) -> dict[int, list[GroupListing] | KafkaFailure]:
        """By broker, all asked at once. By the library: everything under one name, -1."""
        if not self.is_by_wire:
            try:
                return {-1: self._groups.listings()}
            except KafkaFailure as failure:
                return {-1: failure}
        with_types = self._link.serves(group_wire.LIST_GROUPS_WITH_TYPES)

        def ask(broker: BrokerView) -> list[GroupListing] | KafkaFailure:
            try:
                with WireConnection((broker.host, broker.port), timeout_s) as connection:
                    found = group_wire.list_groups(connection, with_types=with_types)
            except KafkaFailure as failure:
                return failure
            except OSError as error:
                return _unreachable(error)
            return [replace(listed, coordinator=broker.broker_id) for listed in found]

        asked = list(brokers)
        if not asked:
            return {}
        with ThreadPoolExecutor(min(len(asked), BROKERS_AT_ONCE)) as threads:
            answers = threads.map(ask, asked)
        return {broker.broker_id: told for broker, told in zip(asked, answers, strict=True)}

    def facts(
        self,
        coordinator: BrokerView | None,
        groups: Sequence[str],
        occupied: Collection[str],
        *,
        piece: int,
        timeout_s: float,
    ) -> Iterator[dict[str, GroupFacts]]:
        """Piece by piece; only the ``occupied`` are asked for members. Raises KafkaFailure when
        the coordinator does not answer: the pieces before it are good."""
        if coordinator is None or not self.is_by_wire:
            for names in _pieces(groups, piece):
                yield self._by_library(names, occupied)
            return
        try:
            with WireConnection((coordinator.host, coordinator.port), timeout_s) as connection:
                for names in _pieces(groups, piece):
                    yield self._by_wire(connection, coordinator, names, occupied)
        except OSError as error:
            raise _unreachable(error) from None

    def _by_wire(
        self,
        connection: WireConnection,
        coordinator: BrokerView,
        names: Sequence[str],
        occupied: Collection[str],
    ) -> dict[str, GroupFacts]:
        asked = [name for name in names if name in occupied]
        views: dict[str, GroupView | KafkaFailure] = {}
        if asked:
            views = self._groups.describe_by_wire(connection, asked, coordinator)
        committed = group_wire.committed_offsets(connection, names)
        return _facts(names, views, committed)

    def _by_library(self, names: Sequence[str], occupied: Collection[str]) -> dict[str, GroupFacts]:
        views = self._groups.describe([name for name in names if name in occupied])
        return _facts(names, views, self._groups.committed(names))


def _facts(
    names: Iterable[str],
    views: Mapping[str, GroupView | KafkaFailure],
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaFailure],
) -> dict[str, GroupFacts]:
    missing = KafkaFailure("UNKNOWN_SERVER_ERROR", "the answer left this group out")
    return {
        name: GroupFacts(
            existing(views[name]) if name in views else None, committed.get(name, missing)
        )
        for name in names
    }


def _unreachable(error: OSError) -> KafkaFailure:
    return KafkaFailure("NOT_CONNECTED", reason_of(error), is_transport=True)


def _pieces(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
