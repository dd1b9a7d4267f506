"""What a cluster is asked and told about where its partitions lie and who leads them.

By plain sockets only: where those cannot be used every call fails with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.model.ids import TopicPartition
from dashboard import moves_wire as wire
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway.cluster_link import ClusterLink
from dashboard.gateway.translate import library_failures
from dashboard.moves_wire import Outcomes, UnderWay
from dashboard.quorum_wire import (
    DESCRIBE_QUORUM,
    NOTHING_TOLD,
    Behind,
    Followers,
    ask_followers,
)
from dashboard.survey_wire import LOG_DIRS, Wanted, ask_log_sizes


class MoveGateway:
    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begun, not awaited; None cancels what is under way."""
        self._need(wire.ALTER)
        with library_failures(), self._link.connect() as connection:
            return wire.reassign(connection, targets)

    def under_way(self) -> dict[TopicPartition, UnderWay]:
        self._need(wire.LIST)
        with library_failures(), self._link.connect() as connection:
            return wire.under_way(connection)

    def elect(
        self, keys: Collection[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> Outcomes:
        """Of these partitions, or of all."""
        self._need(wire.ELECT)
        with library_failures(), self._link.connect() as connection:
            return wire.elect(connection, keys, is_unclean=is_unclean)

    def behind(self, topics: Iterable[TopicView]) -> dict[TopicPartition, dict[int, Behind]]:
        """Of each partition that is short of replicas in sync: who lags, by how much and since when. Leaders
        tell it; how much also the replica itself, where its leader cannot."""
        by_leader: dict[int, list[tuple[str, list[int]]]] = {}
        found: dict[TopicPartition, dict[int, Behind]] = {}
        for topic in topics:
            here: dict[int, list[int]] = {}
            for key, partition in zip(topic.keys, topic.partitions, strict=True):
                out = [each for each in partition.replicas if each not in partition.isr]
                if out:
                    found[key] = dict.fromkeys(out, NOTHING_TOLD)
                    if partition.leader is not None:
                        here.setdefault(partition.leader, []).append(partition.index)
            for leader, indexes in here.items():
                by_leader.setdefault(leader, []).append((topic.name, indexes))
        for place, followers in self._followers(by_leader).items():
            known = found[TopicPartition(*place)]
            known.update({each: told for each, told in followers.items() if each in known})
        silent = {
            each for known in found.values() for each, told in known.items() if told.lag is None
        }
        lags = self.lags(silent) if silent else {}
        for key, known in found.items():
            for each, told in known.items():
                if told.lag is None and each in lags:
                    known[each] = told._replace(lag=lags[each].get(key, 0))
        return found

    def _followers(self, by_leader: Mapping[int, Wanted]) -> Followers:
        found: Followers = {}
        if not by_leader or not self._link.serves(DESCRIBE_QUORUM):
            return found
        for broker in self._link.brokers():
            wanted = by_leader.get(broker.broker_id)
            if wanted is not None:
                address = (broker.host, broker.port)
                with contextlib.suppress(OSError), self._link.connect(address) as connection:
                    found.update(ask_followers(connection, wanted))
        return found

    def lags(self, broker_ids: Collection[int]) -> dict[int, dict[TopicPartition, int]]:
        """Records that replicas lack, by broker; those that lack none, and brokers that cannot be
        asked, are left out."""
        found: dict[int, dict[TopicPartition, int]] = {}
        if not self._link.serves(LOG_DIRS):
            return found
        for broker in self._link.brokers():
            if broker.broker_id not in broker_ids:
                continue
            address = (broker.host, broker.port)
            with contextlib.suppress(OSError), self._link.connect(address) as connection:
                sizes = ask_log_sizes(connection, with_volumes=False)
                found[broker.broker_id] = {
                    TopicPartition(topic, index): lag for (topic, index), lag in sizes.lags.items()
                }
        return found

    def _need(self, request: tuple[int, int]) -> None:
        if not self._link.serves(request):
            raise KafkaFailure(
                "UNSUPPORTED_VERSION", "The cluster does not move partitions on request."
            )
