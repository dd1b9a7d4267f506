"""Three brokers, two topics, ``__transaction_state``, transactional producers and readers of what they commit.

No loss is excused here: either every record is on disk before it counts (``flush.messages=1``), or brokers are
killed but keep their power.
"""

from __future__ import annotations

from broker.model.internal_topics import TRANSACTION_STATE
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.transactions.checker import TransactionChecker
from tests.simulation.transactions.clients import Owner, Reader
from tests.simulation.transactions.coordination import TransactionTypes, in_simulated_time
from tests.simulation.transactions.faults import TransactionFaults
from tests.simulation.transactions.loop import Tasks, WorldLoop
from tests.simulation.world import ProcessSchedule, Settings

DATA_TOPICS = ("orders", "payments")
TRANSACTIONAL_IDS = ("one", "two")


class TransactionStory(Cluster):
    topics = (TRANSACTION_STATE, *DATA_TOPICS)
    settings = Settings(faults_until_ms=14_000, converged_by_ms=31_000)
    #: Nobody begins a transaction from here on, so that at the end none is under way.
    ending_ms = 24_000
    checker: TransactionChecker  # type: ignore[assignment]
    faults: TransactionFaults

    def __init__(self, seed: int, types: type[TransactionTypes] = TransactionTypes) -> None:
        self._producer_ids = 1000
        super().__init__(seed, types)
        self.may_lose_power = self.is_flush_bound

    def _new_checker(self) -> TransactionChecker:  # type: ignore[override]
        return TransactionChecker(self)

    def _new_faults(self) -> Faults:
        return TransactionFaults(self)

    def _start_clients(self) -> None:
        self.loop = WorldLoop(ProcessSchedule(self.world))
        self.tasks = Tasks(self.loop)
        self.owners = [Owner(self, name) for name in TRANSACTIONAL_IDS]
        self.readers = [Reader(self, topic) for topic in DATA_TOPICS]

    @property
    def is_ending(self) -> bool:
        return self.world.now_ms >= self.ending_ms

    def next_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def run(self) -> None:
        try:
            with in_simulated_time():
                super().run()
        finally:
            self.tasks.drop()
            for process in self.processes.values():
                process.end()

    def describe(self) -> str:
        return self.checker.describe()


def run_transactions(
    seed: int, types: type[TransactionTypes] = TransactionTypes
) -> TransactionStory:
    """Raises ``Failure``, as ``run_seed`` does."""
    story = TransactionStory(seed, types)
    story.run()
    return story
