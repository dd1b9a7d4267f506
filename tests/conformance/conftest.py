"""Everything here runs real clients, Apache Kafka or our broker as a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import groups
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import Broker
from tests.support.groups import Member
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


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A raw connection to the broker of this test."""
    with Wire(broker.address) as connection:
        yield connection


@pytest.fixture
def group(wire: Wire) -> str:
    """A new group's name; its coordinator is ready."""
    return groups.new_group(wire)


@pytest.fixture
def new_member(broker: Broker, group: str) -> Iterator[Callable[..., Member]]:
    """Makes members of `group`, each with its own connection, closed at the end."""
    made: list[Member] = []

    def make(**options: Any) -> Member:
        made.append(Member(broker.address, options.pop("group", group), **options))
        return made[-1]

    yield make
    for one in made:
        one.wire.close()
