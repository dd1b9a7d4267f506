"""What must hold, whatever happens. The numbers are those of the names of the failures.

I1  a record acknowledged with acks=all is readable, once, in order
I2  no offset is read twice with different content
I3  the high watermark that a consumer is told never goes back
I4  one leader a leader epoch; leader, partition and controller epochs never go back
I5  two brokers never hold the lease of a partition at once
I6  a partition's state is written by the controller of the present epoch only; its ISR is part of
    the replicas and never empty
I7  below the high watermark the ISR's logs are byte-equal
I8  after everything has healed the cluster comes together again

A loss is excused only when every member of the ISR, as the store has it, has crashed since its
registration was answered, at least one of them by loss of power, and ``flush.messages`` is not 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata import znodes
from broker.metadata.tree import Effect
from broker.model.ids import BrokerId
from broker.records.header import peek_header, walk_headers
from tests.simulation.broker import TOPIC
from tests.simulation.partition import HostedPartition
from tests.simulation.world import Failure

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Checker:
    def __init__(self, cluster: Cluster, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._topic = topic
        self._state_path = znodes.partition_state_path(topic, 0)
        #: Numbers of acknowledged records, in order.
        self.acknowledged: list[int] = []
        self._killed: set[BrokerId] = set()
        self._without_power: set[BrokerId] = set()
        self._seen: dict[int, bytes] = {}
        self._told_high_watermark = 0
        self.consumer_offset = 0
        self.consumer_epoch = -1
        self._stored: znodes.PartitionState | None = None
        self._leaders: dict[int, BrokerId] = {}
        self.excuse_count = 0
        #: Until a leader of a later epoch than this has spoken, readers may find anything.
        self._excused_epoch: int | None = None

    def fail(self, what: str) -> None:
        world = self._cluster.world
        story = "\n".join(world.story)
        raise Failure(f"seed {world.seed}, event {world.event_count}: {what}\n{story}")

    # Crashes -----------------------------------------------------------------------------------

    def on_crash(self, broker_id: BrokerId, is_power_lost: bool) -> None:
        (self._without_power if is_power_lost else self._killed).add(broker_id)
        self._maybe_excuse()

    def on_answered(self, broker_id: BrokerId) -> None:
        """Its new registration is in the image: what it had before no longer counts."""
        self._without_power.discard(broker_id)
        self._killed.discard(broker_id)

    def _maybe_excuse(self) -> None:
        isr = set(self._stored.isr) if self._stored is not None else set()
        if self._cluster.is_flush_bound or not isr:
            return
        if isr <= self._without_power | self._killed and isr & self._without_power:
            self._cluster.world.tell(f"loss is excused: {sorted(isr)} have crashed")
            assert self._stored is not None
            self.excuse_count += 1
            self.acknowledged.clear()
            self._excused_epoch = self._stored.leader_epoch

    # The store ---------------------------------------------------------------------------------

    def on_store_change(self, effect: Effect) -> None:
        if effect.path == self._state_path and effect.after is not None:
            self._on_state(znodes.decode_partition_state(effect.after.data))

    def _on_state(self, state: znodes.PartitionState) -> None:
        before, self._stored = self._stored, state
        self._cluster.world.tell(f"stored: {self._topic} {state}")
        controller_epoch = self._cluster.controller_epoch()
        if state.controller_epoch != controller_epoch:
            self.fail(f"I6: {state} was written while the controller epoch is {controller_epoch}")
        replicas = self._cluster.assignment(self._topic).partitions[0]
        if not state.isr or not set(state.isr) <= set(replicas):
            self.fail(f"I6: {state}, replicas {replicas}")
        if before is not None and state.leader_epoch < before.leader_epoch:
            self.fail(f"I4: {state} after {before}")
        known = self._leaders.setdefault(state.leader_epoch, state.leader_id)
        if known != state.leader_id:
            self.fail(f"I4: {known} and {state.leader_id} lead in epoch {state.leader_epoch}")
        self._maybe_excuse()

    # Each event --------------------------------------------------------------------------------

    def after_event(self) -> None:
        holder = None
        for process in self._cluster.running():
            leader = process.partitions[self._topic].leader
            if leader is not None and leader.holds_lease(process.clock.monotonic_ms()):
                if holder is not None:
                    self.fail(f"I5: {holder} and {process.broker_id} hold the lease")
                holder = process.broker_id

    # Reading -----------------------------------------------------------------------------------

    def on_read(self, leader_epoch: int, high_watermark: int, data: bytes) -> None:
        """A consumer, which never goes back to an older leader, was told this."""
        self.consumer_epoch = max(self.consumer_epoch, leader_epoch)
        if self._excused_epoch is not None:
            if leader_epoch > self._excused_epoch:
                self._excused_epoch = None
            self._seen.clear()
            self._told_high_watermark = self.consumer_offset = 0
            return
        if high_watermark < self._told_high_watermark:
            self.fail(f"I3: high watermark {high_watermark} after {self._told_high_watermark}")
        self._told_high_watermark = high_watermark
        for position, header in walk_headers(memoryview(data)):
            batch = bytes(data[position : position + header.size_in_bytes])
            known = self._seen.setdefault(header.base_offset, batch)
            if known != batch:
                self.fail(f"I2: offset {header.base_offset} was read with other content before")
            self.consumer_offset = header.last_offset + 1

    # The end -----------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        cluster = self._cluster
        state = self._stored
        leaders = cluster.leaders(self._topic)
        assignment = cluster.assignment(self._topic)
        replicas = set(assignment.partitions[0])
        if state is None or len(leaders) != 1 or set(state.isr) != replicas:
            self.fail(f"I8: no whole cluster after healing, but {state}")
        if assignment.adding or assignment.removing:
            self.fail(f"I8: a reassignment has not ended: {assignment}")
        assert leaders
        log = leaders[0].log
        assert log is not None
        high_watermark = log.high_watermark
        data = self._whole(leaders[0], high_watermark)
        for process in cluster.running():
            hosted = process.partitions[self._topic]
            if process.broker_id in replicas and self._whole(hosted, high_watermark) != data:
                self.fail(f"I7: {process.broker_id} differs from {leaders[0].broker_id}")
        self._check_records(data)

    def _whole(self, hosted: HostedPartition, end_offset: int) -> bytes:
        found, offset = b"", 0
        while offset < end_offset:
            part = hosted.read(offset, end_offset)
            if not part:
                break
            found += part
            offset = peek_header(memoryview(part)).base_offset
            for _, header in walk_headers(memoryview(part)):
                offset = header.last_offset + 1
        return found

    def _check_records(self, data: bytes) -> None:
        if not self._cluster.producer.has_produced_since_healing:
            self.fail("I8: nothing could be produced after healing")
        numbers = [
            self._cluster.number_in(data[position : position + header.size_in_bytes])
            for position, header in walk_headers(memoryview(data))
        ]
        missing = set(self.acknowledged) - set(numbers)
        if missing:
            self.fail(f"I1: acknowledged records are lost: {sorted(missing)[:10]}")
        kept = set(self.acknowledged)
        order = [number for number in numbers if number in kept]
        if order != self.acknowledged:
            self.fail("I1: acknowledged records are there twice, or out of order")
