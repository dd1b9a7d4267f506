"""One run: three brokers, a ZooKeeper, a load, faults one after the other, and the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.checker import Checker
from tests.chaos.copying import Copying
from tests.chaos.faults import Faults
from tests.chaos.load import Load
from tests.chaos.network import OUTSIDE, Network, address_of
from tests.chaos.transactions import Transactions
from tests.support import processes
from tests.support.cluster import Cluster
from tests.support.zookeeper import ZooKeeper

TOPIC: Final = "chaos"
TRANSACTIONAL_TOPIC: Final = "chaos-transactions"
COPY_TOPIC: Final = "chaos-copy"
TOPICS: Final = (TOPIC, TRANSACTIONAL_TOPIC, COPY_TOPIC)
PARTITIONS: Final = 3
#: As in `tests.support.cluster`; a broker that is frozen for longer has lost its session.
SESSION_SECONDS: Final = 2.0
#: Acknowledged between two faults.
ENOUGH: Final = 200
WHOLE_SECONDS: Final = 120


@dataclass
class Scene:
    """What a run, or a test that plants something, works on."""

    cluster: Cluster
    zookeeper: ZooKeeper
    load: Load
    transactions: Transactions
    copying: Copying
    faults: Faults

    def wait_until_whole(self) -> None:
        """Every broker tells every replica in sync."""
        brokers = set(self.cluster.brokers)

        def is_whole() -> bool:
            try:
                told = [t for n in brokers for t in self.cluster.metadata(n, *TOPICS).topics]
            except (OSError, EOFError):
                return False
            return all(
                bool(topic.partitions)
                and all(set(p.isr_nodes) == brokers for p in topic.partitions)
                for topic in told
            )

        processes.wait_until(is_whole, WHOLE_SECONDS, "every replica in sync again", every=0.1)

    @property
    def failures(self) -> list[str]:
        """So far."""
        return [
            *self.load.failed,
            *self.load.checker.failures,
            *self.transactions.failed,
            *self.transactions.checker.failures,
            *self.copying.failed,
        ]

    def finish(self) -> list[str]:
        failures = self.load.finish() + self.transactions.finish()
        return failures + self.copying.finish(self.transactions.checker.acknowledged)

    def progress(self) -> str:
        checker, work = self.load.checker, self.transactions
        return (
            f"{len(checker.acknowledged):,} acknowledged, {checker.read_count:,} read; transactions:"
            f" {work.committed:,} committed, {work.aborted:,} aborted, {work.fenced:,} fenced,"
            f" {self.copying.jobs} copying jobs"
        )


@contextmanager
def scene(
    directory: Path, seed: int, network: Network | None = None, *, is_plain: bool = False
) -> Iterator[Scene]:
    """Everything runs; the load, too. In the network, where one is given. Plain brokers are what
    `odradek` starts, with no disk or clock that could be told to misbehave."""
    switches = None if is_plain else directory / "switches"
    zookeeper = ZooKeeper(directory / "zookeeper")
    if network is not None:
        zookeeper.host = OUTSIDE
    with zookeeper:
        cluster = Cluster(
            directory,
            zookeeper,
            "/chaos",
            properties={"transaction.state.log.num.partitions": "6"},
        )
        for number, broker in cluster.brokers.items():
            if network is not None:
                broker.host, broker.prefix = address_of(number), network.prefix(number)
            if switches is not None:
                (switches / str(number)).mkdir(parents=True)
                broker.program = ("tests.chaos.odd_broker", str(switches / str(number)))
        with cluster:
            bootstrap = cluster.bootstrap
            create_topics(bootstrap)
            faults = Faults(cluster, zookeeper, TOPIC, random.Random(seed), switches, network)
            with (
                Load(bootstrap, TOPIC, PARTITIONS, Checker()) as load,
                Transactions(
                    bootstrap, TRANSACTIONAL_TOPIC, PARTITIONS, Checker(), seed
                ) as transactions,
                Copying(
                    bootstrap, TRANSACTIONAL_TOPIC, COPY_TOPIC, PARTITIONS, directory, seed
                ) as copying,
            ):
                made = Scene(cluster, zookeeper, load, transactions, copying, faults)
                made.wait_until_whole()
                load.wait_for_more(ENOUGH)
                yield made


def create_topics(bootstrap: str) -> None:
    """On one of them what counts as written is on the disk."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": "2"}
    new = [
        NewTopic(TOPIC, PARTITIONS, 3, config=config),
        NewTopic(TRANSACTIONAL_TOPIC, PARTITIONS, 3, config={**config, "flush.messages": "1"}),
        NewTopic(COPY_TOPIC, PARTITIONS, 3, config=config),
    ]
    for created in admin.create_topics(new).values():
        created.result(60)


def play(scene: Scene, names: Sequence[str], lasting: float, say: Callable[[str], None]) -> None:
    """These faults in one another, for so long; then everybody has to come together again."""
    with ExitStack() as ends:
        for name in names:
            say(f"{ends.enter_context(scene.faults.one(name))}, for {lasting:g} s")
        time.sleep(lasting)
    ended = time.monotonic()
    scene.wait_until_whole()
    scene.load.wait_for_more(ENOUGH)
    say(f"    whole after {time.monotonic() - ended:.1f} s: {scene.progress()}")
