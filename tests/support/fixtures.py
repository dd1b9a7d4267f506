"""Fixtures that start brokers. A conftest takes them by `from tests.support.fixtures import *`."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker

__all__ = [
    "apache_kafka",
    "broker",
    "new_topic_name",
    "odradek_broker",
    "own_broker",
    "shared_odradek",
    "start_odradek",
]

Broker = ApacheKafka | OdradekBroker
KINDS: dict[str, type[Broker]] = {"odradek": OdradekBroker, "apache": ApacheKafka}
#: Apache Kafka takes its time.
IN_THE_LONG_RUN = ("odradek", pytest.param("apache", marks=pytest.mark.slow))
# Tests of groups wait for sessions to end: both brokers allow short ones, and start at once.
SHARED_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "1800000",
    "offsets.topic.num.partitions": "4",
}
SMALL_INTERNAL_TOPICS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
}
#: Of three brokers: everything has three replicas, two of which must hold it.
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
CLUSTER_SETTINGS = {
    **SHARED_SETTINGS,
    **REPLICATED,
    "transaction.state.log.num.partitions": "6",
}
#: One broker of ours, Apache Kafka, and three of ours.
EVERYWHERE = (*IN_THE_LONG_RUN, pytest.param("cluster", marks=pytest.mark.slow))


@pytest.fixture(scope="session")
def shared_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole run (tests/conftest.py): use topic names of your own."""
    with ApacheKafka(tmp_path_factory.mktemp("apache"), SHARED_SETTINGS) as kafka:
        yield kafka
        kafka.stop()


@pytest.fixture(scope="session")
def shared_odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    """One broker of ours for the whole run: use topic names of your own. Its clean stop is part
    of the judgement."""
    with OdradekBroker(tmp_path_factory.mktemp("odradek"), SHARED_SETTINGS) as odradek:
        yield odradek
        odradek.stop()


@pytest.fixture(params=IN_THE_LONG_RUN, ids=["on_odradek", "on_apache"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """The same script on both: Apache Kafka judges the test itself, in the long run."""
    found: Broker = request.getfixturevalue(f"shared_{request.param}")
    return found


def broker_of_the_file(
    settings: Mapping[str, str] | None = None, *, prefix: str = "own"
) -> Callable[[pytest.FixtureRequest, pytest.TempPathFactory], Iterator[Broker]]:
    """A fixture of one broker for a file, whose tests ask for settings of their own, or for all that is on it;
    Apache Kafka comes only in the long run.

    broker = broker_of_the_file()
    """

    def broker(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Broker]:
        made = KINDS[request.param]
        with made(tmp_path_factory.mktemp(prefix), settings) as broker:
            yield broker

    return pytest.fixture(
        scope="module", params=IN_THE_LONG_RUN, ids=[f"{prefix}_{kind}" for kind in KINDS]
    )(broker)


def broker_with_small_internal_topics() -> Callable[[Path], Iterator[OdradekBroker]]:
    """A `broker` fixture for files that kill a broker of ours, or read its internal topics' files.

    broker = broker_with_small_internal_topics()
    """

    def broker(tmp_path: Path) -> Iterator[OdradekBroker]:
        with OdradekBroker(tmp_path / "b", SMALL_INTERNAL_TOPICS) as made:
            yield made

    return pytest.fixture(broker)


@pytest.fixture(params=IN_THE_LONG_RUN, ids=["own_odradek", "own_apache"])
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may stop and kill; Apache Kafka takes its time, so it comes only in
    the long run."""
    made = KINDS[request.param](tmp_path / "own", SHARED_SETTINGS)
    yield made.start()
    made.close()


@pytest.fixture
def apache_kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """An Apache Kafka of the test's own, not yet started."""
    kafka = ApacheKafka(tmp_path / "apache")
    yield kafka
    kafka.close()


@pytest.fixture
def odradek_broker(tmp_path: Path) -> Iterator[OdradekBroker]:
    """A broker of ours for this test alone, started."""
    with OdradekBroker(tmp_path / "odradek") as odradek:
        yield odradek


@pytest.fixture
def start_odradek(tmp_path: Path) -> Iterator[Callable[..., OdradekBroker]]:
    """Start brokers of ours with given properties: `start_odradek({"log.roll.ms": "1000"})`."""
    started: list[OdradekBroker] = []

    def start(properties: dict[str, str] | None = None, **options: Path) -> OdradekBroker:
        one = OdradekBroker(tmp_path / f"odradek{len(started)}", properties, **options)
        started.append(one)
        return one.start()

    yield start
    for one in started:
        one.close()


@pytest.fixture
def new_topic_name() -> Callable[[], str]:
    """Topic names that nobody used before on a shared broker."""
    return lambda: f"t-{uuid.uuid4().hex[:12]}"
