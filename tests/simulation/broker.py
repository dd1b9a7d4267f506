"""One simulated broker: a disk that stays, and the process on it: the real machines over the real
storage, wired as a server would wire them."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.metadata import znodes
from broker.metadata.candidacy import Candidacy
from broker.metadata.controller import Controller
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint
from broker.metadata.image_feed import ImageFollower, ImageUpdate, ImageVersion
from broker.metadata.registration import Registration
from broker.metadata.requests import AlteredIsr
from broker.metadata.store import Failed, Node, SessionState
from broker.metadata.term import ControllerTerm
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import IsrProposal
from broker.records.header import peek_header
from broker.replication.follower import FollowerMachine
from broker.replication.leader import Acknowledgement, LeaderMachine, ReplicationRules
from broker.replication.replica import Replica
from broker.replication.replica_fetch import (
    Accepted,
    Diverged,
    FetchAnswer,
    FetchRefused,
    FetchVerdict,
    ReplicaFetch,
)
from broker.storage.append_info import AppendInfo
from broker.storage.cold import ColdRead
from broker.storage.flush import FlushNeeded
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from tests.simulation.world import Clock, ProcessSchedule
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_zookeeper import SimulatedStore

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

TOPIC = "orders"
ROOT = "/data"
MAX_READ_BYTES = 1 << 16
_DEFAULTS = resolve_broker_config({})

ProduceDone = Callable[[ErrorCode], None]


class Types:
    """What a planted fault replaces."""

    replica: type[Replica] = Replica
    controller: type[Controller] = Controller
    store: type[SimulatedStore] = SimulatedStore
    process: type[Process]
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
            [ROOT], fs, self.clock, cluster_id=cluster.cluster_id, node_id=broker_id
        )
        self.logs.open(lambda _: cluster.topic_config, threads=1)
        self.replica: Replica | None = None
        self.images = ImageFollower()
        self._is_pulling = False
        self._is_answered = False
        self._backed_off_until = 0
        self._is_flushing = False
        #: Fetches that wait for more: (fetch, answer, epoch of the role).
        self._waiting_fetches: list[tuple[ReplicaFetch, Callable[[FetchAnswer], None], int]] = []
        #: Produce requests that wait: (required offset, done).
        self._waiting_produces: list[tuple[int, ProduceDone]] = []
        self._waiting_pulls: list[tuple[ImageVersion, Callable[[ImageUpdate], None]]] = []
        #: Whoever waits for an answer: the last ones are enough, a requester has few under way.
        self.resets: deque[Callable[[], None]] = deque(maxlen=50)
        self.slow_disk_until = 0
        self.pull_blocked_until = 0
        self._start_cluster_membership()
        self.schedule.call_later(self.settings.tick_ms, self._tick)

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

    def _on_rival(self, broker: BrokerImage) -> None:
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
        partition = self.image.partition(TOPIC, 0)
        if not self.registration.on_image(self.image):
            return
        if not self._is_answered:
            self._is_answered = True
            self.cluster.checker.on_answered(self.broker_id)
        if partition is None:
            return
        if self.broker_id not in partition.replicas:
            self._remove_replica()
            return
        if self.replica is None:
            self.replica = self._open_replica()
            if self.cluster.is_flush_bound:
                self._flush()  # after a crash nobody knows what had been synced
        if self.replica.on_state(
            partition.leadership, self.broker_epochs, self.clock.monotonic_ms()
        ):
            self.world.tell(f"{self.broker_id}: {partition.leadership}")
            self._drop_waiters()
        self._after_change()

    def _remove_replica(self) -> None:
        """Reassigned to others: the log goes."""
        if self.replica is not None and self.replica.on_removed():
            self._drop_waiters()
        work = self.logs.delete(self.cluster.topic_partition)
        if work is not None:
            work.run()
        self.replica = None

    def _open_replica(self) -> Replica:
        log = self.logs.get_or_create(
            self.cluster.topic_partition, self.cluster.topic_id, self.cluster.topic_config
        )
        if self.types.log_fault is not None:
            self.types.log_fault(log)
        rules = ReplicationRules(
            self.settings.lag_max_ms,
            self.cluster.min_insync_replicas,
            self.cluster.is_flush_bound,
            self.settings.lease_ms,
        )
        return self.types.replica(self.broker_id, log, rules, self.clock.monotonic_ms())

    @property
    def log(self) -> Log | None:
        return self.logs.logs.get(self.cluster.topic_partition)

    @property
    def leader(self) -> LeaderMachine | None:
        role = self.replica.role if self.replica is not None else None
        return role if isinstance(role, LeaderMachine) else None

    # Leader ------------------------------------------------------------------------------------

    def serve_produce(self, batch: bytes, done: ProduceDone) -> None:
        leader = self.leader
        if leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        refusal = leader.refusal_of_append()
        if refusal is not ErrorCode.NONE:
            done(refusal)
            return
        log = self.log
        assert log is not None
        data = bytearray(batch)
        try:
            info = log.append_as_leader(
                data, peek_header(data), leader.leader_epoch, self.clock.wall_ms()
            )
        except KafkaError as error:
            done(error.code)
            return
        self._finish_append(info)
        self._waiting_produces.append((info.last_offset + 1, done))
        self._waiting_produces.sort(key=lambda entry: entry[0])
        leader.advance_high_watermark()
        self._after_change()

    def _finish_append(self, info: AppendInfo) -> None:
        log = self.log
        assert log is not None
        if info.rolled is not None:
            info.rolled.run()
            log.on_flushed(info.rolled, None)
        if self.cluster.is_flush_bound:
            self._flush()

    def _flush(self) -> None:
        log = self.log
        if log is None or self._is_flushing:
            return
        work = log.flush_target()
        if work is None:
            return
        self._is_flushing = True
        is_slow = self.world.now_ms < self.slow_disk_until
        delay_ms = self.world.rng.randrange(200, 900) if is_slow else self.world.rng.randrange(1, 5)
        self.schedule.call_later(delay_ms, partial(self._flushed, log, work))

    def _flushed(self, log: Log, work: FlushNeeded) -> None:
        error: OSError | None = None
        try:
            work.run()
        except OSError as failure:  # its directory went with the partition
            error = failure
        log.on_flushed(work, error)
        self._is_flushing = False
        if self.leader is not None:
            self.leader.advance_high_watermark()
        if self.cluster.is_flush_bound:
            self._flush()
        self._after_change()

    def serve_fetch(self, fetch: ReplicaFetch, answer: Callable[[FetchAnswer], None]) -> None:
        leader = self.leader
        if leader is None:
            refused = FetchRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            answer(FetchAnswer(fetch.leader_epoch, 0, refused, b"", -1, -1))
            return
        high_watermark = leader.high_watermark
        verdict = leader.on_fetch(fetch, self.broker_epochs, self.clock.monotonic_ms())
        if leader.high_watermark != high_watermark:
            self._after_change()
        log = self.log
        assert log is not None
        has_news = fetch.fetch_offset < log.log_end_offset
        if not isinstance(verdict, Accepted) or has_news:
            self._answer_fetch(leader, fetch, verdict, answer)
            return
        entry = (fetch, answer, leader.leader_epoch)
        self._waiting_fetches.append(entry)
        self.schedule.call_later(self.settings.long_poll_ms, partial(self._fetch_is_over, entry))
        self._propose()

    def _fetch_is_over(
        self, entry: tuple[ReplicaFetch, Callable[[FetchAnswer], None], int]
    ) -> None:
        if entry in self._waiting_fetches:
            self._waiting_fetches.remove(entry)
            fetch, answer, leader_epoch = entry
            if self.leader is not None and self.leader.leader_epoch == leader_epoch:
                self._answer_fetch(self.leader, fetch, Accepted(fetch.fetch_offset), answer)

    def _answer_fetch(
        self,
        leader: LeaderMachine,
        fetch: ReplicaFetch,
        verdict: FetchVerdict,
        answer: Callable[[FetchAnswer], None],
    ) -> None:
        log = self.log
        assert log is not None
        data = b""
        if isinstance(verdict, Accepted):
            data = self.read(fetch.fetch_offset, log.log_end_offset)
        number = 0
        if isinstance(verdict, Accepted | Diverged):
            number = leader.note_answer(fetch.replica_id, self.clock.monotonic_ms())
        answer(
            FetchAnswer(
                leader.leader_epoch,
                number,
                verdict,
                self.cluster.on_the_wire(data),
                leader.high_watermark,
                log.log_start_offset,
            )
        )

    def read(self, start_offset: int, end_offset: int) -> bytes:
        log = self.log
        assert log is not None
        while True:
            found = log.read(start_offset, MAX_READ_BYTES, end_offset, True)
            if not isinstance(found, ColdRead):
                break
            found.pull()
        region = found.region
        if region is None:
            return b""
        return bytes(region.file.pread(region.length, region.position))  # type: ignore[attr-defined]

    def _propose(self) -> None:
        leader = self.leader
        if leader is None:
            return
        proposal = leader.propose(self.broker_epochs, self.clock.monotonic_ms())
        if proposal is None:
            return
        asked_ms = self.clock.monotonic_ms()
        self.world.tell(f"{self.broker_id}: {proposal}")
        delay_ms, is_answer_lost = self.cluster.faults.on_proposal(self, leader, proposal)

        def ended(result: AlteredIsr | None) -> None:
            if self.leader is not leader:
                return
            if result is None:
                leader.on_proposal_lost()
            elif result.state is not None and result.is_success:
                leader.on_proposal_accepted(result.state, asked_ms)
            else:
                leader.on_proposal_refused(result.error)
            self._after_change()

        self.cluster.request(
            self,
            self.candidacy.controller_id,
            lambda to, answer: to.serve_proposal(proposal, answer),
            ended,
            delay_ms=delay_ms,
            is_answer_lost=is_answer_lost,
        )

    def serve_proposal(self, proposal: IsrProposal, answer: Callable[[AlteredIsr], None]) -> None:
        term = self.candidacy.term
        if isinstance(term, ControllerTerm) and self.candidacy.is_in_office:
            term.controller.alter_isr(TOPIC, 0, proposal, answer)
        else:
            answer(AlteredIsr(error=ErrorCode.NOT_CONTROLLER))

    def _after_change(self) -> None:
        """The log grew, the high watermark or the ISR moved: whoever waits for it goes on."""
        leader, log = self.leader, self.log
        if leader is None or log is None:
            self._fetch()
            return
        while self._waiting_produces:
            required, done = self._waiting_produces[0]
            state = self.acknowledgement(leader, required)
            if state is Acknowledgement.WAITING:
                break
            self._waiting_produces.pop(0)
            is_committed = state is Acknowledgement.COMMITTED
            done(ErrorCode.NONE if is_committed else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        ready = [
            entry for entry in self._waiting_fetches if entry[0].fetch_offset < log.log_end_offset
        ]
        for entry in ready:
            self._waiting_fetches.remove(entry)
            self._answer_fetch(leader, entry[0], Accepted(entry[0].fetch_offset), entry[1])

    def acknowledgement(self, leader: LeaderMachine, required_offset: int) -> Acknowledgement:
        return leader.acknowledgement(required_offset)

    def _drop_waiters(self) -> None:
        self._waiting_fetches.clear()
        waiting, self._waiting_produces = self._waiting_produces, []
        for _, done in waiting:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Follower ----------------------------------------------------------------------------------

    def _fetch(self) -> None:
        replica, broker_epoch = self.replica, self.registration.broker_epoch
        if replica is None or broker_epoch is None or self.world.now_ms < self._backed_off_until:
            return
        fetch = replica.next_fetch(broker_epoch, self.clock.monotonic_ms())
        if fetch is None:
            return
        role = replica.role
        assert isinstance(role, FollowerMachine)

        def ended(answer: FetchAnswer | None) -> None:
            if replica.role is not role:
                return
            if answer is None:
                role.on_no_answer()
                return
            result = role.on_answer(fetch, answer, self.clock.wall_ms())
            if result.appended is not None:
                self._finish_append(result.appended)
            if result.is_back_off:
                self._backed_off_until = self.world.now_ms + 50
            else:
                self._fetch()

        self.cluster.request(
            self, role.leader_id, lambda to, answer: to.serve_fetch(fetch, answer), ended
        )

    # Time --------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.schedule.call_later(self.settings.tick_ms, self._tick)
        self._pull()
        self._fetch()
        self._propose()
        if self.term is not None:
            for broker_id in self.term.fencing.due_probes(self.clock.monotonic_ms()):
                self._probe(broker_id)
        leader = self.leader
        if leader is not None and leader.isr.maximal == {self.broker_id}:
            asked_ms = self.clock.monotonic_ms()

            def found(node: Node | Failed | None) -> None:
                if isinstance(node, Node):
                    leader.on_alone_confirmed(node.version, asked_ms)

            self.store.get(znodes.partition_state_path(TOPIC, 0), found)
        if self.world.rng.random() < 0.05:
            self._flush()
            for work in self.logs.checkpoint_work():
                work.run()


Types.process = Process
