"""Everything here runs real clients, Apache Kafka or our broker as a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import groups
from tests.support.cluster import Cluster
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import CLUSTER_SETTINGS, EVERYWHERE, KINDS, SHARED_SETTINGS
from tests.support.groups import Member
from tests.support.routing import Site, address_for_group, connect
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A real one, of the clusters of one file."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def shared_cluster(
    zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers of one file, for tests that kill nobody."""
    directory = tmp_path_factory.mktemp("cluster")
    chroot = f"/{directory.name}"
    with Cluster(directory, zookeeper, chroot, properties=CLUSTER_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(params=EVERYWHERE, ids=["own_odradek", "own_apache", "own_cluster"])
def own_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """What `own_broker` gives, or a cluster of ours, any broker of which may be killed."""
    if request.param == "cluster":
        zookeeper = request.getfixturevalue("zookeeper")
        chroot = f"/{tmp_path.name}"
        with Cluster(tmp_path / "own", zookeeper, chroot, properties=CLUSTER_SETTINGS) as cluster:
            yield cluster
    else:
        with KINDS[request.param](tmp_path / "own", SHARED_SETTINGS) as broker:
            yield broker


@pytest.fixture
def wire(broker: Site) -> Iterator[Wire]:
    """A raw connection to the broker of this test."""
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def group(wire: Wire) -> str:
    """A new group's name; its coordinator is ready."""
    return groups.new_group(wire)


@pytest.fixture
def new_member(broker: Site, group: str) -> Iterator[Callable[..., Member]]:
    """Makes members of `group`, each with its own connection, closed at the end."""
    made: list[Member] = []

    def make(**options: Any) -> Member:
        name = options.pop("group", group)
        made.append(Member(address_for_group(broker, name), name, **options))
        return made[-1]

    yield make
    for one in made:
        one.wire.close()
