"""Faults that wait for transactions, besides those that wait for ISR changes."""

from __future__ import annotations

from broker.coordinator.transaction.records import read_transaction
from broker.model.ids import BrokerId
from broker.model.internal_topics import TRANSACTION_STATE
from broker.records.batch import iter_records
from tests.simulation.faults import Faults
from tests.simulation.partition import HostedPartition


class TransactionFaults(Faults):
    _next_trap_ms = 0
    _questions_late_until_ms = 0
    _next_failover_ms = 0
    _is_heir_awaited = False
    #: Who is kept from following, and until when.
    _held_back = (BrokerId(-1), 0)

    def on_markers(self, coordinator_id: BrokerId) -> tuple[int, bool]:
        """How late a request with markers is to arrive, and whether its answer is lost.

        Late is worse than lost: the coordinator repeats it, or another one does, and the first copy comes
        when the producer has gone on.
        """
        world, rng = self._world, self._rng
        if self._is_over or world.now_ms < self._next_trap_ms or rng.random() > 0.15:
            return 0, False
        world.fault_count += 1
        delay_ms = rng.choice((0, 0, rng.randrange(200, 3000)))
        is_answer_lost = rng.random() < 0.6
        self._next_trap_ms = world.now_ms + 1000
        end = rng.choice((self._kill, self._stop, self._isolate, self._expire, None))
        world.tell(
            f"fault: markers of {coordinator_id} late {delay_ms} ms, answer lost {is_answer_lost}, "
            f"then {'nothing' if end is None else end.__name__[1:]}"
        )
        if end is not None:
            world.call_later(
                rng.randrange(1, 200), lambda: None if self._is_over else end(coordinator_id)
            )
        return delay_ms, is_answer_lost

    # A client gives up ---------------------------------------------------------------------------

    def on_impatience(self) -> None:
        """Its batch is under way, and its transaction about to be aborted: what the partition's leader is told by the
        coordinator may come behind the marker."""
        if not self._is_over and self._rng.random() < 0.8:
            self._questions_late_until_ms = self._world.now_ms + 150

    def on_question(self) -> int:
        """How late the answer to a partition's leader comes."""
        rng, now_ms = self._rng, self._world.now_ms
        if not self._is_over and (now_ms < self._questions_late_until_ms or rng.random() < 0.03):
            return rng.randrange(30, 370)
        return 0

    # The coordinator changes twice ---------------------------------------------------------------

    def on_coordinator_append(self, hosted: HostedPartition, batch: bytes) -> None:
        """One follower does not get how a transaction is to end, and the leader dies before that is committed."""
        world, rng = self._world, self._rng
        if self._is_over or world.now_ms < self._next_failover_ms or not _is_prepared(batch):
            return
        if rng.random() > 0.3:
            return
        self._next_failover_ms = world.now_ms + 4000
        left_out = max(each for each in self._cluster.broker_ids if each != hosted.broker_id)
        world.fault_count += 1
        world.tell(f"fault: {left_out} does not follow {hosted.broker_id}, which dies soon")
        self._held_back = (left_out, world.now_ms + rng.randrange(300, 3000))
        self._is_heir_awaited = True
        world.call_later(
            rng.randrange(2, 40), lambda: None if self._is_over else self._kill(hosted.broker_id)
        )

    def on_leader(self, hosted: HostedPartition) -> None:
        """The heir goes on from what only it has, and dies too."""
        world = self._world
        if self._is_over or not self._is_heir_awaited or hosted.topic != TRANSACTION_STATE:
            return
        self._is_heir_awaited = False
        if not self.holds_back(hosted) and self._rng.random() < 0.7:
            world.fault_count += 1
            world.tell(f"fault: the heir {hosted.broker_id} dies soon")
            world.call_later(
                self._rng.randrange(20, 300),
                lambda: None if self._is_over else self._kill(hosted.broker_id),
            )

    def holds_back(self, hosted: HostedPartition) -> bool:
        broker_id, until_ms = self._held_back
        return (
            hosted.topic == TRANSACTION_STATE
            and hosted.broker_id == broker_id
            and self._world.now_ms < until_ms
            and not self._is_over
        )

    # Compaction ----------------------------------------------------------------------------------

    def on_cleaning(self) -> bool:
        """Whether the broker dies amid it."""
        return not self._is_over and self._rng.random() < 0.1

    def on_death(self, broker_id: BrokerId) -> None:
        self._world.fault_count += 1
        self._world.tell(f"fault: {broker_id} dies while it cleans")
        self._crash(broker_id, self._rng.random() < 0.5)

    def _victim(self) -> BrokerId:
        if self._rng.random() < 0.5:
            leaders = self._cluster.leaders(self._rng.choice(self._cluster.topics))
            if leaders:
                return self._rng.choice(leaders).broker_id
        return super()._victim()


def _is_prepared(batch: bytes) -> bool:
    """Whether a batch of the coordinator's says how a transaction is to end."""
    return any(
        record.value is not None and read_transaction(record.value).state.is_prepared
        for record in iter_records(batch, 1 << 16)
    )
