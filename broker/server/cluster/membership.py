"""One broker in a cluster: registered, perhaps the controller, and always with the newest image.

Owns the store in ZooKeeper and the machines over it; ``docs/replication.md`` says what they do. The
image comes from this broker's own term of office or is pulled from the controller, and is told by
``on_image`` once a registration was answered: roles of an earlier life are never taken.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.metadata import znodes
from broker.metadata.candidacy import Candidacy
from broker.metadata.controller import Controller
from broker.metadata.differences import differences
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint
from broker.metadata.image_codec import decode_update
from broker.metadata.image_feed import ImageFeed, ImageFollower, ImageUpdate
from broker.metadata.load import read_image
from broker.metadata.registration import Registration
from broker.metadata.requests import AlteredIsr, NewTopic
from broker.metadata.store import Failed, Node, SessionState
from broker.metadata.term import ControllerTerm
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_session import SessionFile
from broker.metadata.zookeeper_store import CannotConnectError, ZooKeeperStore
from broker.model.features import SUPPORTED, why_unsupported
from broker.model.ids import NO_BROKER, BrokerId
from broker.server.cluster.forwarding import forward, is_forwarded
from broker.server.cluster.imports import ClusterImports
from broker.server.cluster.isr_wire import AskedIsr
from broker.server.cluster.joining import Agreed, agree, read_connected
from broker.server.cluster.peer import Peer, PeerError, PeerRefusedError, endpoint_of
from broker.server.cluster.preferred_leaders import PreferredLeaders
from broker.server.cluster.private_apis import PrivateApis
from broker.server.cluster.private_wire import PrivateKey
from broker.server.cluster.refusals import Refusals
from broker.server.cluster.replication import Replication
from broker.server.cluster.transactions import ClusterTransactions
from broker.server.cluster.unclean_elections import UncleanElections
from broker.server.data_directory import claim_for_zookeeper
from broker.server.start_error import StartError, StartInterrupted
from broker.server.tasks import called_back, until

if TYPE_CHECKING:
    from broker.protocol.request import RequestHeader
    from broker.server.app import Broker
    from broker.server.connection import Connection, ResponseSlot

logger: Final = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper-session"
#: Between attempts to reach a controller.
BACK_OFF_SECONDS: Final = 0.1
#: How long a broker that stops waits until others lead what it led.
LEAVE_SECONDS: Final = 5.0
#: How long a topic that another broker's controller has made may take to be seen here.
SEEN_SECONDS: Final = 5.0

#: Told of the image before and after; ``changes`` of the latter lead from the one to the other.
OnImage = Callable[[ClusterImage, ClusterImage], None]


class Membership:
    """Everything on the loop; ``open``, ``start``, ``answered``, ``stop``, in this order."""

    def __init__(self, broker: Broker, address: ZooKeeperAddress, on_image: OnImage) -> None:
        self._broker = broker
        self._on_image = on_image
        self.broker_id = BrokerId(broker.config.node_id)
        self._directory = broker.data_directory / "metadata"
        self.store = ZooKeeperStore(
            address,
            SessionFile(self._directory / SESSION_FILE),
            self._post,
        )
        self.apis = PrivateApis(self, broker.loop)
        self.replication = Replication(broker, self)
        self.transactions = ClusterTransactions(broker, self)
        self.imports = ClusterImports(broker, self)
        self.refusals = Refusals(broker, self)
        self._unclean_elections = UncleanElections(broker, self)
        self._images = ImageFollower()
        self.image = ClusterImage()
        #: The last image that was told; while no registration is answered none is.
        self._told: ClusterImage | None = None
        self.secret = b""
        self._cluster_id = ""
        self._answered: asyncio.Future[None] = broker.loop.create_future()
        self._idle_controller = self._new_controller(lambda old, new: None, lambda why: None)
        self._idle_controller.stop("This broker is not the controller.")
        self._controller_changed = asyncio.Event()
        self._is_stopped = False
        self._registration: Registration | None = None
        self._candidacy: Candidacy | None = None
        self._address = address
        #: When the session became what it is.
        self._session_since_ms = broker.clock.wall_ms()

    # Life --------------------------------------------------------------------------------------

    async def open(self, log_dirs: Sequence[str]) -> Agreed:
        """Connect, and know which cluster this is. ``image`` is what the store holds then: to open
        logs by, not to take roles from. Raises StartError."""
        claim_for_zookeeper(self._directory)
        try:
            await self._broker.threads.call(self.store.open)
        except CannotConnectError as error:
            raise StartError(f"{error}; is zookeeper.connect right?") from error
        agreed, image = await read_connected(
            self.store,
            partial(self._read_cluster, log_dirs),
            self._broker.clock,
            self._address.connection_timeout_ms,
        )
        self._cluster_id, self.secret = agreed
        unsupported = why_unsupported(image.features)
        if unsupported is not None:
            raise StartError(f"this version cannot join: {unsupported}")
        self.image = image
        return agreed

    async def _read_cluster(self, log_dirs: Sequence[str]) -> tuple[Agreed, ClusterImage]:
        agreed = await agree(self.store, log_dirs)
        image = await called_back(read_image, self.store)
        if isinstance(image, str):
            raise StartError(image)
        return agreed, image

    def start(self, endpoints: tuple[Endpoint, ...], rack: str | None, directory_id: str) -> None:
        """Others can reach us from here on."""
        self._registration = Registration(
            self.store,
            BrokerImage(self.broker_id, -1, endpoints, rack, SUPPORTED),
            directory_id,
            self._broker.clock,
            self._on_registered,
            self._on_rival,
        )
        self._candidacy = Candidacy(self.store, self.broker_id, self._new_term, self._on_controller)
        self.store.on_session(self._on_session)
        self._registration.start()
        self._candidacy.start()
        self._broker.tasks.keep(self._keep_pulling, "pull the image", is_vital=True)
        self.refusals.start()
        PreferredLeaders(self._broker, self).start()

    async def answered(self) -> None:
        """Returns when the image holds our registration. Raises StartError at a rival, and
        StartInterrupted after ``interrupt``."""
        await self._answered

    def interrupt(self) -> None:
        """The broker is to stop: nobody need wait for an answer."""
        if not self._answered.done():
            self._answered.set_exception(StartInterrupted())
            self._answered.exception()  # nobody may have waited yet

    async def stop(self) -> None:
        """The session ends: others see it at once."""
        self._is_stopped = True
        if self._candidacy is not None and self._registration is not None:
            self._candidacy.stop()
            self._registration.stop()
        await self._broker.threads.call(self.store.close)

    def _post(self, call: Callable[[], None]) -> None:
        self._broker.loop.call_soon_threadsafe(self._take_event, call)

    def _post_here(self, call: Callable[[], None]) -> None:
        self._broker.loop.call_soon(self._take_event, call)

    def _take_event(self, call: Callable[[], None]) -> None:
        """Registration, candidacy and controller live by these events. One that breaks off half-way leaves a
        controller that writes nothing more and stays in office, or a broker that never registers again."""
        try:
            call()
        except Exception as error:
            self._broker.fail(f"an event of the metadata store could not be taken: {error!r}")
            raise

    # Who is who --------------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        """Of this broker's term of office, else one that refuses everything."""
        term = self.term
        return self._idle_controller if term is None else term.controller

    @property
    def is_in_office(self) -> bool:
        return self.term is not None

    def suspect_controller(self) -> None:
        """Its address refuses. Whoever is elected raises the epoch, so a wrong suspicion costs a term
        and nothing else."""
        if self._candidacy is not None:
            self._candidacy.suspect()

    @property
    def feed(self) -> ImageFeed | None:
        term = self._candidacy.term if self._candidacy is not None else None
        return term.feed if isinstance(term, ControllerTerm) else None

    @property
    def term(self) -> ControllerTerm | None:
        """While this broker is in office."""
        candidacy = self._candidacy
        if candidacy is None or not candidacy.is_in_office:
            return None
        return candidacy.term if isinstance(candidacy.term, ControllerTerm) else None

    def leads(self, topic: str, index: int) -> bool:
        partition = self.image.partition(topic, index)
        return partition is not None and partition.leader_id == self.broker_id

    def _on_registered(self, broker_epoch: int) -> None:
        logger.info("registered, broker epoch %d", broker_epoch)
        assert self._registration is not None
        if self._told is None and self._registration.was_answered:
            self._tell(self.image, self.image)

    async def refuse_rival(self) -> None:
        """Before the logs are opened. Raises StartError if somebody is registered under this number."""
        node = await called_back(self.store.get, znodes.broker_path(self.broker_id))
        if isinstance(node, Node):
            rival = znodes.decode_broker(self.broker_id, node.creation_id, node.data)
            raise _taken(rival, znodes.decode_registered_ms(node.data))

    def _on_rival(self, rival: BrokerImage, since_ms: int) -> None:
        error = _taken(rival, since_ms)
        if not self._answered.done():
            self._answered.set_exception(error)
        else:
            logger.critical("%s", error)
            self._broker.request_stop()

    def _on_session(self, state: SessionState) -> None:
        if self._is_stopped:
            return
        self._session_since_ms = self._broker.clock.wall_ms()
        if state is not SessionState.CONNECTED:
            logger.warning("the session with ZooKeeper is %s", state.value)
        assert self._registration is not None
        assert self._candidacy is not None
        self._registration.on_session(state)
        self._candidacy.on_session(state)
        if state is SessionState.CONNECTED:
            self.store.get(znodes.CLUSTER_ID, self._on_cluster)

    def _on_cluster(self, node: Node | Failed | None) -> None:
        """Its data may be lost, or restored from those of another cluster, while it was away."""
        if isinstance(node, Failed) or self._is_stopped:
            return
        if node is None or znodes.decode_cluster_id(node.data) != self._cluster_id:
            held = "no cluster" if node is None else "another cluster"
            self._broker.fail(f"ZooKeeper holds {held} there now, instead of {self._cluster_id}")

    def describe_session(self) -> dict[str, Any]:
        """For whoever looks at this broker."""
        return {
            "hosts": self._address.hosts,
            "chroot": self._address.chroot,
            "state": self.store.session_state.value,
            "since_ms": self._session_since_ms,
            "session_id": f"{self.store.session_id:#x}",
            "timeout_ms": self._address.session_timeout_ms,
        }

    def _on_controller(self, controller_id: BrokerId) -> None:
        logger.info(
            "the controller is %s", "nobody" if controller_id == NO_BROKER else controller_id
        )
        self._controller_changed.set()
        self.replication.on_controller()

    def _new_term(self, on_stopped: Callable[[str], None]) -> ControllerTerm:
        return ControllerTerm(
            self._cluster_id,
            self.broker_id,
            self._new_controller,
            self._on_own_image,
            on_stopped,
        )

    def _new_controller(
        self,
        on_image: OnImage,
        on_stopped: Callable[[str], None],
    ) -> Controller:
        broker = self._broker
        return Controller(
            store=self.store,
            broker_id=self.broker_id,
            broker_config=lambda: broker.config,
            clock=broker.clock,
            new_topic_id=uuid.uuid4,
            dice=random.Random(),  # noqa: S311 - placement, not secrets
            post=self._post_here,
            on_image=on_image,
            on_stopped=on_stopped,
        )

    # Images ------------------------------------------------------------------------------------

    def _on_own_image(self) -> None:
        feed = self.feed
        if feed is None:
            return
        update = feed.update_for(self._images.known)
        if update is not None:
            self._take(update)
        self.apis.on_image()

    def _take(self, update: ImageUpdate) -> None:
        """A failure ends the broker: it would lead and follow by half of an image, and be told the rest never."""
        try:
            self._apply(update)
        except Exception as error:
            self._broker.fail(f"an image of the cluster cannot be applied: {error!r}")
            raise

    def _apply(self, update: ImageUpdate) -> None:
        before = self.image
        is_next = (
            len(update.steps) == 1
            and self._images.known == (update.controller_epoch, update.base)
            and self._told is before
        )
        if not self._images.on_update(update):
            return
        after = self._images.image
        assert self._registration is not None
        is_told = self._registration.on_image(after)
        if not is_next:
            # From the last one that was told: some may have been kept from those who take roles.
            base = before if self._told is None else self._told
            after = replace(after, changes=tuple(differences(base, after)))
        self.image = after
        unsupported = why_unsupported(after.features)
        if unsupported is not None:
            # Finalised while our registration had lapsed: nobody asked whether we can.
            logger.critical("this version cannot stay: %s", unsupported)
            self._broker.request_stop()
            return
        self.refusals.on_image(after)
        if is_told:
            self._tell(before, after)

    def _tell(self, before: ClusterImage, after: ClusterImage) -> None:
        """Roles are taken from this image."""
        self._told = after
        if not self._answered.done():
            self._answered.set_result(None)
        self._on_image(before, after)
        self._unclean_elections.on_image(before, after)

    async def _keep_pulling(self) -> None:
        while True:
            assert self._candidacy is not None
            controller_id = self._candidacy.controller_id
            self._controller_changed.clear()
            if controller_id in (NO_BROKER, self.broker_id):
                await self._controller_changed.wait()
                continue
            try:
                # Not to its end: a machine that is gone is dialled for seconds.
                await until(self._controller_changed, self._pull_from(controller_id))
            except PeerRefusedError as error:
                if self._candidacy.controller_id == controller_id:
                    logger.warning("the controller %d is gone: %s", controller_id, error)
                    self.suspect_controller()
                await asyncio.sleep(BACK_OFF_SECONDS)
            except (PeerError, ValueError) as error:
                logger.info("no image from the controller %d: %s", controller_id, error)
                await asyncio.sleep(BACK_OFF_SECONDS)

    async def _pull_from(self, controller_id: BrokerId) -> None:
        peer = await self.connect(controller_id)
        with closing(peer):
            while True:
                known = self._images.known
                body = {"epoch": known.controller_epoch, "version": known.version}
                data = await peer.ask(PrivateKey.PULL_IMAGE, body)
                if data:
                    self._take(decode_update(data))

    def wall_ms(self) -> int:
        return self._broker.clock.wall_ms()

    async def connect(self, broker_id: BrokerId) -> Peer:
        """By its registration: the image may be too old to know it. Raises PeerError."""
        node = await called_back(self.store.get, znodes.broker_path(broker_id))
        if not isinstance(node, Node):
            raise PeerError(f"broker {broker_id} is not registered")
        return await self._dial(znodes.decode_broker(broker_id, node.creation_id, node.data))

    async def connect_by_image(self, broker_id: BrokerId) -> Peer:
        """Where the image says that it is: the store may be away. Raises PeerError."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise PeerError(f"broker {broker_id} is not there")
        return await self._dial(broker)

    async def _dial(self, broker: BrokerImage) -> Peer:
        endpoint = endpoint_of(broker, self._broker.config.inter_broker_listener_name)
        return await Peer.connect(endpoint.host, endpoint.port, self.secret)

    # Requests to the controller ----------------------------------------------------------------

    def is_forwarded(self, connection: Connection, api_key: int) -> bool:
        return is_forwarded(self, connection, api_key)

    async def forward(self, header: RequestHeader, frame: bytes, slot: ResponseSlot) -> bool:
        """Gives whether the controller answered, and was passed on."""
        return await forward(self, header, frame, slot)

    async def connect_to_controller(self) -> Peer:
        """Raises PeerError."""
        return await self.connect(self.controller_id)

    @property
    def controller_id(self) -> BrokerId:
        return NO_BROKER if self._candidacy is None else self._candidacy.controller_id

    @property
    def broker_epoch(self) -> int | None:
        """None while this broker is not registered."""
        return None if self._registration is None else self._registration.broker_epoch

    def let_leave(
        self, broker_id: BrokerId, broker_epoch: int, done: Callable[[bool], None]
    ) -> None:
        """That broker is about to stop: ``done`` when others lead what it led."""
        term = self.term
        if term is None:
            done(False)
        else:
            term.broker_leaves(broker_id, broker_epoch, partial(done, True))

    async def leave(self) -> None:
        """This broker is about to stop: returns when others lead, or cannot be asked."""
        broker_epoch = self.broker_epoch
        if broker_epoch is None or len(self.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                if self.term is not None:
                    await called_back(self.let_leave, self.broker_id, broker_epoch)
                    return
                with closing(await self.connect_to_controller()) as peer:
                    body = {"broker": self.broker_id, "epoch": broker_epoch}
                    await peer.ask_json(PrivateKey.LEAVE, body)
        except (PeerError, TimeoutError) as error:
            logger.warning("stopping although others may not lead yet: %r", error)

    def alter_isrs(
        self, asked: Sequence[AskedIsr], done: Callable[[list[AlteredIsr]], None]
    ) -> None:
        """Of the controller, which refuses unless this broker is in office; in their order."""
        results: dict[int, AlteredIsr] = {}

        def altered(number: int, result: AlteredIsr) -> None:
            results[number] = result
            if len(results) == len(asked):
                done([results[number] for number in range(len(asked))])

        controller = self.controller
        for number, (topic, index, proposal) in enumerate(asked):
            controller.alter_isr(topic, index, proposal, partial(altered, number))

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Of our own accord, wherever the controller is; returns when they are seen here, or will
        not be. Who loses a race finds the topic anyway."""
        if self.term is not None:
            await called_back(self.controller.create_topics, topics, False)
            return
        told = [
            (topic.name, topic.partition_count, topic.replication_factor, list(topic.configs))
            for topic in topics
        ]
        try:
            with closing(await self.connect_to_controller()) as peer:
                await peer.ask_json(PrivateKey.CREATE_TOPICS, {"topics": told})
        except PeerError as error:
            logger.warning("topics were not created: %s", error)
            return
        names = [topic.name for topic in topics]
        ends = self._broker.loop.time() + SEEN_SECONDS
        while self._broker.loop.time() < ends:
            if all(name in self.image.topics for name in names):
                return
            await asyncio.sleep(0.005)


def _taken(rival: BrokerImage, since_ms: int) -> StartError:
    at = ", ".join(f"{each.host}:{each.port}" for each in rival.endpoints)
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return StartError(
        f"node {rival.broker_id} is another broker already, at {at}, since {since:%Y-%m-%d %H:%M:%S} UTC; give"
        " this one a node.id of its own"
    )
