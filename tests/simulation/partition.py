"""One replica on a simulated broker: the real machines of a partition over its real log, and who waits there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.metadata import znodes
from broker.metadata.requests import AlteredIsr
from broker.metadata.store import Failed, Node
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.records.header import peek_header
from broker.replication.acknowledgement import Acknowledgement
from broker.replication.follower import FollowerMachine
from broker.replication.leader import LeaderMachine, ReplicationRules
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

if TYPE_CHECKING:
    from tests.simulation.broker import Process

MAX_READ_BYTES = 1 << 16

ProduceDone = Callable[[ErrorCode], None]


class HostedPartition:
    """Partition 0 of a topic, in whatever role; ``replica`` is None while it has none here."""

    def __init__(self, process: Process, topic: str) -> None:
        self.process = process
        self.topic = topic
        self.topic_partition = TopicPartition(topic, 0)
        self.cluster = process.cluster
        self.world = process.world
        self.settings = process.settings
        self.schedule = process.schedule
        self.clock = process.clock
        self.broker_id = process.broker_id
        self.replica: Replica | None = None
        self._backed_off_until = 0
        self._is_flushing = False
        #: Fetches that wait for more: (fetch, answer, epoch of the role).
        self._waiting_fetches: list[tuple[ReplicaFetch, Callable[[FetchAnswer], None], int]] = []
        #: Produce requests that wait: (required offset, done).
        self._waiting_produces: list[tuple[int, ProduceDone]] = []

    # Images ------------------------------------------------------------------------------------

    def on_image(self) -> None:
        """The process has one that counts."""
        partition = self.process.image.partition(self.topic, 0)
        if partition is None:
            return
        if self.broker_id not in partition.replicas:
            self._remove_replica()
            return
        if self.replica is None:
            self.replica = self._open_replica()
            if self.cluster.is_flush_bound:
                self.flush()  # after a crash nobody knows what had been synced
        if self.replica.on_state(
            partition.leadership, self.process.broker_epochs, self.clock.monotonic_ms()
        ):
            self.world.tell(f"{self.broker_id}: {self.topic} {partition.leadership}")
            self._on_role()
        self._after_change()

    def _on_role(self) -> None:
        """Another one than before: whoever waited for that is told so."""
        self._drop_waiters()

    def _remove_replica(self) -> None:
        """Reassigned to others: the log goes."""
        if self.replica is not None and self.replica.on_removed():
            self._on_role()
        work = self.process.logs.delete(self.topic_partition)
        if work is not None:
            work.run()
        self.replica = None

    def _open_replica(self) -> Replica:
        log = self.process.logs.get_or_create(
            self.topic_partition,
            self.cluster.topic_ids[self.topic],
            self.cluster.config_of(self.topic),
        )
        types = self.process.types
        if types.log_fault is not None:
            types.log_fault(log)
        rules = ReplicationRules(
            self.settings.lag_max_ms,
            self.cluster.min_insync_replicas,
            self.cluster.is_flush_bound,
            lease_ms=self.settings.lease_ms,
        )
        return types.replica(self.broker_id, log, rules, self.clock.monotonic_ms())

    @property
    def log(self) -> Log | None:
        return self.process.logs.logs.get(self.topic_partition)

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
            self.flush()

    def flush(self) -> None:
        log = self.log
        if log is None or self._is_flushing:
            return
        work = log.flush_target()
        if work is None:
            return
        self._is_flushing = True
        is_slow = self.world.now_ms < self.process.slow_disk_until
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
            self.flush()
        self._after_change()

    def serve_fetch(self, fetch: ReplicaFetch, answer: Callable[[FetchAnswer], None]) -> None:
        leader = self.leader
        if leader is None:
            refused = FetchRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            answer(FetchAnswer(fetch.leader_epoch, 0, refused, b"", -1, -1))
            return
        high_watermark = leader.high_watermark
        verdict = leader.on_fetch(fetch, self.process.broker_epochs, self.clock.monotonic_ms())
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
        self.propose()

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

    def propose(self) -> None:
        leader = self.leader
        if leader is None:
            return
        proposal = leader.propose(self.process.broker_epochs, self.clock.monotonic_ms())
        if proposal is None:
            return
        asked_ms = self.clock.monotonic_ms()
        self.world.tell(f"{self.broker_id}: {proposal}")
        delay_ms, is_answer_lost = self.cluster.faults.on_proposal(self.process, leader, proposal)

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
            self.process,
            self.process.candidacy.controller_id,
            lambda to, answer: to.serve_proposal(self.topic, proposal, answer),
            ended,
            delay_ms=delay_ms,
            is_answer_lost=is_answer_lost,
        )

    def _after_change(self) -> None:
        """The log grew, the high watermark or the ISR moved: whoever waits for it goes on."""
        leader, log = self.leader, self.log
        if leader is None or log is None:
            self.fetch()
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

    def fetch(self) -> None:
        replica, broker_epoch = self.replica, self.process.registration.broker_epoch
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
            if answer is None or self.cluster.faults.holds_back(self):
                role.on_no_answer()
                return
            result = role.on_answer(fetch, answer, self.clock.wall_ms())
            if result.appended is not None:
                self._finish_append(result.appended)
            if result.is_back_off:
                self._backed_off_until = self.world.now_ms + 50
            else:
                self.fetch()

        self.cluster.request(
            self.process,
            role.leader_id,
            lambda to, answer: to.partitions[self.topic].serve_fetch(fetch, answer),
            ended,
        )

    # Time --------------------------------------------------------------------------------------

    def look_at_store(self) -> None:
        """A leader alone in its ISR asks whether that still holds."""
        leader = self.leader
        if leader is None or leader.isr.maximal != {self.broker_id}:
            return
        asked_ms = self.clock.monotonic_ms()

        def found(node: Node | Failed | None) -> None:
            if isinstance(node, Node):
                leader.on_alone_confirmed(node.version, asked_ms)

        self.process.store.get(znodes.partition_state_path(self.topic, 0), found)
