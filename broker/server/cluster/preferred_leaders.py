"""Leadership goes back to the first replica of each partition, by a timer of the controller's."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from broker.metadata.image import PartitionImage
from broker.metadata.requests import PartitionName
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)


class PreferredLeaders:
    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership

    def start(self) -> None:
        self._broker.tasks.keep(self._keep_electing, "elect preferred leaders")

    async def _keep_electing(self) -> None:
        while True:
            config = self._broker.config
            await asyncio.sleep(config.leader_imbalance_check_interval_seconds)
            if (
                self._membership.term is not None
                and self._broker.config.auto_leader_rebalance_enable
            ):
                await self._elect_all()

    async def _elect_all(self) -> None:
        turn = Turn()
        image = self._broker.image
        wanted: list[PartitionName] = []
        for topic in image.topics.values():
            for partition in topic.partitions:
                if _is_led_by_another(partition) and partition.replicas[0] in image.brokers:
                    wanted.append(PartitionName(topic.name, partition.index))
            if turn.is_over:
                await turn.pass_on()
        if not wanted:
            return
        results = await called_back(self._membership.controller.elect_leaders, wanted)
        elected = sum(result.is_success for result in results)
        if elected:
            logger.info("%d partitions are led by their preferred replica again", elected)


def _is_led_by_another(partition: PartitionImage) -> bool:
    first = partition.replicas[0]
    return partition.leader_id != first and first in partition.isr
