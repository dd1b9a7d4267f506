"""Everything here runs real clients, Apache Kafka or our broker as a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import Broker
from tests.support.wire import Wire

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A raw connection to the broker of this test."""
    with Wire(broker.address) as connection:
        yield connection
