"""One simulated broker: a disk that stays, and the process on it: the real machines over the real
storage, wired as a server would wire them."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.metadata.candidacy import Candidacy
from broker.metadata.controller import Controller
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint
from broker.metadata.image_feed import ImageFollower, ImageUpdate, ImageVersion
from broker.metadata.registration import Registration
from broker.metadata.requests import AlteredIsr
from broker.metadata.store import SessionState
from broker.metadata.term import ControllerTerm
from broker.model.error_code import ErrorCode
from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import IsrProposal
from broker.replication.replica import Replica
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from tests.simulation.partition import HostedPartition
from tests.simulation.world import Clock, ProcessSchedule
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_zookeeper import SimulatedStore

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

TOPIC = "orders"
ROOT = "/data"
_DEFAULTS = resolve_broker_config({})


class Types:
    """What a planted fault replaces."""

    replica: type[Replica] = Replica
    controller: type[Controller] = Controller
    store: type[SimulatedStore] = SimulatedStore
    process: type[Process]
    partition: type[HostedPartition] = HostedPartition
    log_fault: Callable[[Log], None] | None = None


class Process:
    """From start to crash. Everything that it schedules ends with it."""

    def __init__(self, cluster: Cluster, broker_id: BrokerId, fs: FaultyFileSystem) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.settings = cluster.settings
        self.types = cluster.types
        self.broker_id = broker_id
        self.schedule = ProcessSchedule(cluster.world)
        self.clock = Clock(cluster.world)
        self.fs = fs
        self.logs = LogManager(
            [ROOT],
            fs,
            self.clock,
            cluster_id=cluster.cluster_id,
            node_id=broker_id,
            producer_id_expiration_ms=cluster.producer_id_expiration_ms,
        )
        self.logs.open(lambda tp: cluster.config_of(tp.topic), threads=1)
        self.images = ImageFollower()
        self._is_pulling = False
        self._is_answered = False
        self._waiting_pulls: list[tuple[ImageVersion, Callable[[ImageUpdate], None]]] = []
        #: Whoever waits for an answer: the last ones are enough, a requester has few under way.
        self.resets: deque[Callable[[], None]] = deque(maxlen=50)
        self.slow_disk_until = 0
        self.pull_blocked_until = 0
        self.partitions = {topic: self.types.partition(self, topic) for topic in cluster.topics}
        self._start_cluster_membership()
        self.schedule.call_later(self.settings.tick_ms, self._tick)

    def end(self) -> None:
        """Its death, or the end of a clean stop."""
        self.schedule.is_alive = False

    # Membership --------------------------------------------------------------------------------

    def _start_cluster_membership(self) -> None:
        self.store = self.types.store(self.cluster.zookeeper, self.schedule, self.broker_id)
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092 + self.broker_id, "PLAINTEXT")
        self.registration = Registration(
            self.store,
            BrokerImage(self.broker_id, -1, (endpoint,)),
            f"directory-{self.broker_id}",
            self.clock,
            lambda epoch: self._on_registered(),
            self._on_rival,
        )
        self.candidacy = Candidacy(
            self.store,
            self.broker_id,
            self._new_term,
            lambda controller_id: self.schedule.post(self._pull),
        )
        self.store.on_session(self._on_session)
        self.registration.start()
        self.candidacy.start()

    def _on_registered(self) -> None:
        if self.registration.was_answered and not self._is_answered:
            self._on_image()

    def _on_rival(self, broker: BrokerImage, since_ms: int) -> None:
        raise AssertionError(f"{broker} is no rival: it has our directory")

    def _on_session(self, state: SessionState) -> None:
        self.registration.on_session(state)
        self.candidacy.on_session(state)

    def _new_term(self, on_stopped: Callable[[str], None]) -> ControllerTerm:
        return ControllerTerm(
            self.cluster.cluster_id,
            self.broker_id,
            self._new_controller,
            self._answer_pulls,
            on_stopped,
        )

    @property
    def term(self) -> ControllerTerm | None:
        term = self.candidacy.term
        return term if isinstance(term, ControllerTerm) and self.candidacy.is_in_office else None

    def on_refused(self, target_id: BrokerId) -> None:
        """Nobody listens on that broker's address."""
        broker = self.image.brokers.get(target_id)
        if target_id == self.candidacy.controller_id:
            self.candidacy.suspect()
        elif broker is not None:
            epoch = broker.broker_epoch
            self.cluster.request(
                self,
                self.candidacy.controller_id,
                lambda to, answer: to.serve_refusal(self.broker_id, target_id, epoch, answer),
                lambda answer: None,
            )

    def serve_refusal(
        self,
        observer: BrokerId,
        suspect: BrokerId,
        broker_epoch: int,
        answer: Callable[[bool], None],
    ) -> None:
        term, now_ms = self.term, self.clock.monotonic_ms()
        if term is not None and term.broker_refused(observer, suspect, broker_epoch, now_ms):
            self._probe(suspect)
        answer(True)

    def leave(self, done: Callable[[bool | None], None]) -> None:
        """Controlled shutdown: ask the controller that others lead."""
        epoch = self.registration.broker_epoch or -1
        self.cluster.request(
            self,
            self.candidacy.controller_id,
            lambda to, answer: to.serve_leaving(self.broker_id, epoch, answer),
            done,
        )

    def serve_leaving(
        self, broker_id: BrokerId, broker_epoch: int, answer: Callable[[bool], None]
    ) -> None:
        if self.term is not None:
            self.term.broker_leaves(broker_id, broker_epoch, lambda: answer(True))

    def _probe(self, broker_id: BrokerId) -> None:
        """A refusal comes back by ``on_refused``, as any does."""

        def ended(answer: bool | None) -> None:
            if answer is not None and self.term is not None:
                self.term.broker_answered(broker_id)

        self.cluster.request(self, broker_id, lambda to, answer: answer(True), ended)

    def _new_controller(
        self,
        on_image: Callable[[ClusterImage, ClusterImage], None],
        on_stopped: Callable[[str], None],
    ) -> Controller:
        return self.types.controller(
            store=self.store,
            broker_id=self.broker_id,
            broker_config=self._config,
            clock=self.clock,
            new_topic_id=lambda: uuid.UUID(int=self.world.rng.getrandbits(128)),
            dice=self.world.rng,
            post=self.schedule.post,
            on_image=on_image,
            on_stopped=on_stopped,
        )

    def _config(self) -> BrokerConfig:
        """Kafka's defaults: no unclean elections."""
        return _DEFAULTS

    # Images ------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        return self.images.image

    @property
    def broker_epochs(self) -> dict[BrokerId, int]:
        return {broker_id: b.broker_epoch for broker_id, b in self.image.brokers.items()}

    def _pull(self) -> None:
        controller_id = self.candidacy.controller_id
        is_blocked = self.world.now_ms < self.pull_blocked_until
        if self._is_pulling or is_blocked or controller_id == NO_BROKER:
            return
        self._is_pulling = True
        known = self.images.known

        def ended(update: ImageUpdate | None) -> None:
            self._is_pulling = False
            if self.world.now_ms < self.pull_blocked_until:
                return
            if update is not None and self.images.on_update(update):
                self._on_image()
            if update is not None:
                self._pull()

        self.cluster.request(
            self, controller_id, lambda to, answer: to.serve_pull(known, answer), ended
        )

    def serve_pull(self, known: ImageVersion, answer: Callable[[ImageUpdate], None]) -> None:
        self._waiting_pulls.append((known, answer))
        self._answer_pulls()

    def _answer_pulls(self) -> None:
        term = self.candidacy.term
        if not isinstance(term, ControllerTerm) or term.feed is None:
            return
        waiting, self._waiting_pulls = self._waiting_pulls[-20:], []
        for known, answer in waiting:
            update = term.feed.update_for(known)
            if update is None:
                self._waiting_pulls.append((known, answer))
            else:
                answer(update)

    def _on_image(self) -> None:
        if not self.registration.on_image(self.image):
            return
        if not self._is_answered:
            self._is_answered = True
            self.cluster.checker.on_answered(self.broker_id)
        for partition in self.partitions.values():
            partition.on_image()

    @property
    def is_leading(self) -> bool:
        return any(partition.leader is not None for partition in self.partitions.values())

    def serve_proposal(
        self, topic: str, proposal: IsrProposal, answer: Callable[[AlteredIsr], None]
    ) -> None:
        term = self.candidacy.term
        if isinstance(term, ControllerTerm) and self.candidacy.is_in_office:
            term.controller.alter_isr(topic, 0, proposal, answer)
        else:
            answer(AlteredIsr(error=ErrorCode.NOT_CONTROLLER))

    # Time --------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.schedule.call_later(self.settings.tick_ms, self._tick)
        self._pull()
        for partition in self.partitions.values():
            partition.fetch()
            partition.propose()
        if self.term is not None:
            for broker_id in self.term.fencing.due_probes(self.clock.monotonic_ms()):
                self._probe(broker_id)
        for partition in self.partitions.values():
            partition.look_at_store()
        if self.world.rng.random() < 0.05:
            for partition in self.partitions.values():
                partition.flush()
            for work in self.logs.checkpoint_work():
                work.run()


Types.process = Process
