"""Raw requests to a cluster of ours: each goes to the broker whom it concerns, again once that has changed.

So what a test asks of one broker by ``Wire`` it can ask of three: ``connect`` serves both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.model.ids import NO_BROKER
from tests.support import processes
from tests.support.cluster import Cluster
from tests.support.fixtures import EVERYWHERE, REPLICATED, Broker
from tests.support.odradek import OdradekBroker
from tests.support.replicated import partitions_of
from tests.support.transactions import TRANSACTION_KEY
from tests.support.wire import Struct, Wire

Site = Broker | Cluster
GROUP_KEY = 0
TIMEOUT = 20
#: Where the topic and the partition stand in a request.
_BY_LEADER = {
    "produce": ("topic_data", "name", "partition_data", "index"),
    "fetch": ("topics", "topic", "partitions", "partition"),
    "list_offsets": ("topics", "name", "partitions", "partition_index"),
    "delete_records": ("topics", "name", "partitions", "partition_index"),
}
#: Those that tell partitions by their numbers alone.
_BY_LEADER_OF_FIRST = ("describe_producers", "write_txn_markers")
_BY_GROUP = {
    **dict.fromkeys(
        (
            "join_group",
            "sync_group",
            "heartbeat",
            "leave_group",
            "offset_commit",
            "offset_delete",
            "consumer_group_heartbeat",
            "txn_offset_commit",
        ),
        "group_id",
    ),
    "offset_fetch": "groups",
    "describe_groups": "groups",
    "delete_groups": "groups_names",
    "consumer_group_describe": "group_ids",
}
_BY_TRANSACTION = {
    "init_producer_id": "transactional_id",
    "add_partitions_to_txn": "v3_and_below_transactional_id",
    "add_offsets_to_txn": "transactional_id",
    "end_txn": "transactional_id",
    "describe_transactions": "transactional_ids",
}
_BY_CONTROLLER = ("create_topics", "delete_topics", "create_partitions")
#: Each broker tells its own.
_BY_EVERYONE = {"list_groups": "groups", "list_transactions": "transaction_states"}
#: Nothing was done: a leader, a coordinator or a controller is on its way to its office.
_NOT_IN_OFFICE = {5, 6, 14, 15, 16, 41, 78}


def one_or_three(
    settings: Mapping[str, str],
) -> Callable[[pytest.FixtureRequest, Path], Iterator[OdradekBroker | Cluster]]:
    """A fixture of a broker of ours for each test, and in the long run of three.

    broker = one_or_three({})
    """

    def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OdradekBroker | Cluster]:
        if request.param == 1:
            with OdradekBroker(tmp_path / "b", settings) as one:
                yield one
        else:
            zookeeper, chroot = request.getfixturevalue("zookeeper"), f"/{tmp_path.name}"
            properties = {**settings, **REPLICATED}
            with Cluster(tmp_path / "b", zookeeper, chroot, properties=properties) as three:
                yield three

    params = (1, pytest.param(3, marks=pytest.mark.slow))
    return pytest.fixture(params=params, ids=["on_one", "on_three"])(broker)


#: Brokers of ours that the tests of a file, or of a whole run, have in common.
OURS = ("odradek", pytest.param("cluster", marks=pytest.mark.slow))


def shared_site(params: Sequence[Any] = EVERYWHERE) -> Callable[[pytest.FixtureRequest], Site]:
    """A fixture of what the tests of a file share, and in the long run of Apache Kafka and a cluster of ours.

    broker = shared_site()
    """

    def broker(request: pytest.FixtureRequest) -> Site:
        found: Site = request.getfixturevalue(f"shared_{request.param}")
        return found

    ids = [f"on_{getattr(each, 'values', (each,))[0]}" for each in params]
    return pytest.fixture(params=params, ids=ids)(broker)


def connect(site: Site, *, timeout: float = TIMEOUT) -> Wire:
    if isinstance(site, Cluster):
        return RoutedWire(site, timeout=timeout)
    return Wire(site.address, timeout=timeout)


def address_for_group(site: Site, group: str) -> tuple[str, int]:
    """Where a member of that group connects to."""
    if isinstance(site, Cluster):
        return site.brokers[coordinator(site, group, GROUP_KEY)].address
    return site.address


def replicas(site: Site) -> int:
    """That a topic is to have."""
    return len(site.brokers) if isinstance(site, Cluster) else 1


def is_running(cluster: Cluster, number: int) -> bool:
    return number in cluster.brokers and cluster.brokers[number].process is not None


def coordinator(cluster: Cluster, key: str, key_type: int) -> int:
    found: list[int] = []

    def is_found() -> bool:
        with Wire(cluster.running[0].address) as wire:
            answer = wire.request("find_coordinator", 4, key_type=key_type, coordinator_keys=[key])
        (told,) = answer.coordinators
        found[:] = [told.node_id]
        return told.error_code == 0 and is_running(cluster, told.node_id)

    processes.wait_until(is_found, 60, f"the coordinator of {key}")
    return found[0]


def leader(cluster: Cluster, topic: str, partition: int) -> int:
    found: list[int] = []

    def is_found() -> bool:
        # A broker that has just started may not know the topic yet.
        told = {each.partition_index: each.leader_id for each in partitions_of(cluster, topic)}
        found[:] = [told.get(partition, NO_BROKER)]
        return is_running(cluster, found[0])

    processes.wait_until(is_found, 60, f"the leader of {topic}-{partition}")
    return found[0]


def controller(cluster: Cluster) -> int:
    found: list[int] = []

    def is_found() -> bool:
        number = next(each for each in cluster.brokers if is_running(cluster, each))
        found[:] = [cluster.metadata(number).controller_id]
        return is_running(cluster, found[0])

    processes.wait_until(is_found, 60, "the controller")
    return found[0]


class RoutedWire(Wire):
    """Has no connection of its own, but one for each request."""

    def __init__(self, cluster: Cluster, *, timeout: float = TIMEOUT) -> None:
        self.cluster = cluster
        self.timeout = timeout

    def close(self) -> None:
        pass

    def send(self, api: str | int, version: int, /, *, answered: bool = True, **fields: Any) -> int:
        raise NotImplementedError("who answers is only known to the end: ask by request()")

    def request(self, api: str | int, version: int, /, **fields: Any) -> Struct:
        assert isinstance(api, str)
        if api in _BY_EVERYONE:
            return self._ask_everyone(api, version, fields)
        answers: list[Struct] = []

        def is_answered() -> bool:
            number = self._destination(api, fields)
            answers[:] = [self._ask(number, api, version, fields)]
            return not _NOT_IN_OFFICE.intersection(_codes(answers[0]))

        processes.wait_until(is_answered, 60, f"{api} of one in office: {answers}")
        return answers[0]

    def _ask(self, number: int, api: str, version: int, fields: dict[str, Any]) -> Struct:
        with Wire(self.cluster.brokers[number].address, timeout=self.timeout) as wire:
            return wire.request(api, version, **fields)

    def _ask_everyone(self, api: str, version: int, fields: dict[str, Any]) -> Struct:
        numbers = [number for number in self.cluster.brokers if is_running(self.cluster, number)]
        first, *others = [self._ask(number, api, version, fields) for number in numbers]
        for other in others:
            getattr(first, _BY_EVERYONE[api]).extend(getattr(other, _BY_EVERYONE[api]))
        return first

    def _destination(self, api: str, fields: dict[str, Any]) -> int:
        cluster = self.cluster
        if api in _BY_LEADER:
            topics, name, partitions, index = _BY_LEADER[api]
            (topic,) = fields[topics]
            named = topic[name] if name in topic else topic["topic_id"]
            return self._leader(named, topic[partitions][0][index])
        if api in _BY_LEADER_OF_FIRST:
            named = fields["markers"][0] if "markers" in fields else fields
            topic = named["topics"][0]
            return self._leader(topic["name"], topic["partition_indexes"][0])
        if api in _BY_GROUP:
            # OffsetFetch has but one group in old versions.
            field = _BY_GROUP[api] if _BY_GROUP[api] in fields else "group_id"
            return coordinator(cluster, _first(fields[field]), GROUP_KEY)
        if "transactions" in fields:  # AddPartitionsToTxn between brokers
            fields = {_BY_TRANSACTION[api]: fields["transactions"][0]["transactional_id"]}
        transactional_id = _first(fields.get(_BY_TRANSACTION.get(api, ""), ""))
        if transactional_id:
            return coordinator(cluster, transactional_id, TRANSACTION_KEY)
        if api in _BY_CONTROLLER:
            return controller(cluster)
        return self._anybody()

    def _anybody(self) -> int:
        cluster = self.cluster
        return next(number for number in cluster.brokers if is_running(cluster, number))

    def _leader(self, topic: str | uuid.UUID, partition: int) -> int:
        """Of a topic that nobody knows, whoever says so."""
        known = self._ask(self._anybody(), "metadata", 12, {"topics": None}).topics
        for each in known:
            if topic in (each.name, each.topic_id):
                return leader(self.cluster, each.name, partition)
        return self._anybody()


def _first(name: Any) -> str:
    if isinstance(name, list):
        (name,) = name
    if isinstance(name, dict):
        name = name["group_id"]
    return name or ""


def _codes(answer: Struct) -> Iterator[int]:
    for name, value in vars(answer).items():
        if name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _codes(each)


def kill(cluster: Cluster, find: Callable[[Cluster], int]) -> int:
    """Its number; returns once another has that office, as a client would find it."""
    number = find(cluster)
    cluster.brokers[number].kill9()
    find(cluster)
    return number
