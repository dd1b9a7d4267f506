"""What becomes of a refusal: told to the controller, which tries for itself, and fences (``metadata/fencing.py``).

Where the controller refuses, this broker tries to take its place.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.term import ControllerTerm
from broker.model.ids import BrokerId
from broker.server.cluster.peer import PeerError
from broker.server.cluster.presence import Presence, is_refused
from broker.server.cluster.private_wire import PrivateKey

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

#: Fenced brokers that are due are tried again.
PROBE_SECONDS: Final = 0.5


class Refusals:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership
        self._presence = Presence(
            membership.broker_id,
            broker.tasks,
            self._on_refused,
            broker.fragments.on_doubted,
            broker.config.inter_broker_listener_name,
        )

    def start(self) -> None:
        self._broker.tasks.keep(self._keep_probing, "probe fenced brokers")

    def on_image(self, image: ClusterImage) -> None:
        self._presence.on_image(image)

    def _on_refused(self, broker: BrokerImage) -> None:
        membership = self._membership
        if broker.broker_id == membership.controller_id:
            membership.suspect_controller()
        elif membership.term is not None:
            self.on_evidence(membership.broker_id, broker.broker_id, broker.broker_epoch)
        else:
            self._broker.tasks.spawn(self._tell(broker), "tell a refusal")

    async def _tell(self, broker: BrokerImage) -> None:
        body = {
            "observer": self._membership.broker_id,
            "suspect": broker.broker_id,
            "epoch": broker.broker_epoch,
        }
        try:
            with closing(await self._membership.connect_to_controller()) as peer:
                await peer.ask_json(PrivateKey.REFUSAL, body)
        except PeerError as error:
            logger.info(
                "broker %d refuses, and no controller hears it: %s", broker.broker_id, error
            )

    # Of the controller -------------------------------------------------------------------------

    def on_told(self, body: dict[str, Any]) -> None:
        """Raises ValueError, KeyError or TypeError at anything that is no refusal."""
        self.on_evidence(
            BrokerId(int(body["observer"])), BrokerId(int(body["suspect"])), int(body["epoch"])
        )

    def on_evidence(self, observer: BrokerId, suspect: BrokerId, broker_epoch: int) -> None:
        term = self._membership.term
        now_ms = self._broker.clock.monotonic_ms()
        if term is not None and term.broker_refused(observer, suspect, broker_epoch, now_ms):
            self._probe(term, suspect)

    async def _keep_probing(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            term = self._membership.term
            if term is not None:
                for broker_id in term.fencing.due_probes(self._broker.clock.monotonic_ms()):
                    self._probe(term, broker_id)

    def _probe(self, term: ControllerTerm, broker_id: BrokerId) -> None:
        registered = term.fencing.registered(broker_id)
        if registered is not None:
            self._broker.tasks.spawn(self._try(term, registered), f"probe broker {broker_id}")

    async def _try(self, term: ControllerTerm, broker: BrokerImage) -> None:
        outcome = await is_refused(broker, self._broker.config.inter_broker_listener_name)
        if self._membership.term is not term:
            return
        if outcome is True:
            self.on_evidence(self._membership.broker_id, broker.broker_id, broker.broker_epoch)
        elif outcome is False:
            term.broker_answered(broker.broker_id)
