"""Unclean elections: off unless they were asked for, and never silent.

Where ``unclean.leader.election.enable`` is on, the controller has a replica lead that was not in sync when
nobody of the ISR is there (``metadata/cluster_steps.py``); what only the ISR had is lost. Here that is said in
the log, and partitions without a leader get one when the setting is turned on.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.config.topic_config import resolve_topic_config
from broker.metadata.changes import (
    BrokerConfigsChanged,
    Change,
    PartitionsChanged,
    TopicConfigsChanged,
)
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.requests import PartitionName
from broker.model.ids import NO_BROKER
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

SETTING: Final = "unclean.leader.election.enable"


class UncleanElections:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """After it was told to all others: settings of the broker are those of ``after``."""
        has_been_turned_on = False
        for change in after.changes:
            if isinstance(change, PartitionsChanged):
                for partition in change.partitions:
                    self._tell(
                        change.topic, before.partition(change.topic, partition.index), partition
                    )
            elif _may_turn_on(change):
                has_been_turned_on = True
        if has_been_turned_on and self._membership.is_in_office:
            self._broker.tasks.spawn(self._elect(), "elect leaders that are not in sync")

    def _tell(self, topic: str, before: PartitionImage | None, after: PartitionImage) -> None:
        if before is None or not is_unclean(before, after):
            return
        mine = self._membership.broker_id
        if self._membership.is_in_office or after.leader_id == mine:
            logger.error(
                "UNCLEAN ELECTION: %s-%d is led by broker %d, which was not in sync; what only %s had is lost",
                topic, after.index, after.leader_id, sorted(before.isr),
            )  # fmt: skip

    async def _elect(self) -> None:
        wanted: list[PartitionName] = []
        turn = Turn()
        for topic in self._broker.image.topics.values():
            if self._is_on(topic):
                logger.warning("%s is on for %s: records may be lost", SETTING, topic.name)
                wanted += [
                    PartitionName(topic.name, partition.index)
                    for partition in topic.partitions
                    if partition.leader_id == NO_BROKER
                ]
            if turn.is_over:
                await turn.pass_on()
        if wanted:
            elect = partial(self._membership.controller.elect_leaders, is_unclean=True)
            await called_back(elect, wanted)

    def _is_on(self, topic: TopicImage) -> bool:
        config = resolve_topic_config(topic.configs, self._broker.config)
        return config.unclean_leader_election_enable


def _may_turn_on(change: Change) -> bool:
    return (
        isinstance(change, TopicConfigsChanged | BrokerConfigsChanged)
        and change.configs.get(SETTING) == "true"
    )


def is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether nobody of the ISR stayed in it, and not because the partition was moved."""
    return (
        after.leader_id != NO_BROKER
        and after.replicas == before.replicas
        and not before.isr & after.isr
    )
