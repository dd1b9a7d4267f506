"""Three brokers, ``__transaction_state``, transactional producers and readers of what they commit.

There are two kinds, by the seed: two topics with two producers at once; or one topic with one producer, and a group of
copy jobs that takes what is in it to another topic, with ``__consumer_offsets``. In both, logs of internal topics are
compacted, and what nobody uses for some seconds is forgotten.

No loss is excused here: either every record is on disk before it counts (``flush.messages=1``), or brokers are
killed but keep their power.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from broker.config.topic_config import TopicConfig
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.transactions.asking import Owner
from tests.simulation.transactions.checker import TransactionChecker
from tests.simulation.transactions.clients import TransactionalProducer
from tests.simulation.transactions.coordination import (
    EXPIRATION_MS,
    TransactionTypes,
    in_simulated_time,
)
from tests.simulation.transactions.copying import SOURCE, TARGET, Copier
from tests.simulation.transactions.faults import TransactionFaults
from tests.simulation.transactions.loop import Tasks, WorldLoop
from tests.simulation.transactions.readers import Reader
from tests.simulation.world import ProcessSchedule, Settings

#: Small segments, so that there is something to clean.
_INTERNAL = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 3000,
    "index_interval_bytes": 300,
    "delete_retention_ms": 1000,
}


class TransactionStory(Cluster):
    settings = Settings(faults_until_ms=14_000, converged_by_ms=31_000)
    #: Longer than any request may be under way: what a partition forgets, nobody repeats.
    producer_id_expiration_ms = EXPIRATION_MS
    #: Nobody begins a transaction from here on, so that at the end none is under way; copying goes on.
    ending_ms = 22_000
    copying_ends_ms = 28_000
    checker: TransactionChecker  # type: ignore[assignment]
    faults: TransactionFaults

    def __init__(self, seed: int, types: type[TransactionTypes] = TransactionTypes) -> None:
        self._producer_ids = 1000
        self.cleaned_records = 0
        self.is_copying = seed % 2 == 1
        self.data_topics: tuple[str, ...] = (SOURCE,) if self.is_copying else (SOURCE, "payments")
        self.topics = (TRANSACTION_STATE, *self.data_topics)
        if self.is_copying:
            self.topics += (CONSUMER_OFFSETS, TARGET)
        super().__init__(seed, types)
        self.may_lose_power = self.is_flush_bound

    def config_of(self, topic: str) -> TopicConfig:
        if topic not in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            return self.topic_config
        return replace(self.topic_config, **_INTERNAL)  # type: ignore[arg-type]

    def _new_checker(self) -> TransactionChecker:  # type: ignore[override]
        return TransactionChecker(self)

    def _new_faults(self) -> Faults:
        return TransactionFaults(self)

    def _start_clients(self) -> None:
        self.loop = WorldLoop(ProcessSchedule(self.world))
        self.tasks = Tasks(self.loop)
        names = ("one",) if self.is_copying else ("one", "two")
        self.owners = [Owner(self, each, TransactionalProducer, self.ending_ms) for each in names]
        if self.is_copying:
            names = ("copy-1", "copy-2")
            self.owners += [Owner(self, each, Copier, self.copying_ends_ms) for each in names]
        self.readers = [Reader(self, topic) for topic in self.topics]

    async def idle(self) -> None:
        """Longer than what nobody uses is remembered, unless everything heals meanwhile."""
        end_ms = self.world.now_ms + EXPIRATION_MS + self.world.rng.randrange(500, 2500)
        while self.world.now_ms < end_ms and not self.is_healed:
            await asyncio.sleep(0.1)

    @property
    def may_dawdle(self) -> bool:
        """There is time enough to copy what is left."""
        return self.world.now_ms < self.ending_ms

    @property
    def has_stepped(self) -> bool:
        """A wall clock that stepped may have made anything old."""
        return self.world.wall_step_ms != 0

    def next_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def run(self) -> None:
        try:
            with in_simulated_time(self.world.rng):
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
