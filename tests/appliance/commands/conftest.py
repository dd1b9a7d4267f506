"""Commands against real brokers: ours and Apache Kafka, which judges the tests themselves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.appliance.conftest import Done, Odradek
from tests.support.fixtures import Broker

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture
def on_broker(odradek: Odradek, broker: Broker) -> Odradek:
    """Run a command line against the broker of this test."""

    def run(*arguments: object, stdin: bytes = b"") -> Done:
        return odradek("-b", broker.bootstrap, *arguments, stdin=stdin)

    return run


@pytest.fixture
def topic(on_broker: Odradek, new_topic_name: Callable[[], str]) -> str:
    """A new topic with three partitions."""
    name = new_topic_name()
    on_broker("topic", "create", name, "-p", 3).ok()
    return name
