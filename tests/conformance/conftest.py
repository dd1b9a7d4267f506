"""Everything here runs real clients, Apache Kafka or our broker as a process.

ODRADEK_PART="1/5" keeps one fifth of the slow tests, so that a run of bounded time sees them all in
turn.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import groups
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import Broker
from tests.support.groups import Member
from tests.support.wire import Wire

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = os.environ.get("ODRADEK_PART")
    number, count = (int(text) for text in part.split("/")) if part else (0, 1)
    others = []
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.conformance)
        is_slow = item.get_closest_marker("slow") is not None
        if is_slow and zlib.crc32(item.nodeid.encode()) % count != number:
            others.append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


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
