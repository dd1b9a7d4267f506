"""The gateway against real brokers: ours and Apache Kafka."""

import pytest

from dashboard.gateway import Gateway
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import Broker


@pytest.fixture
def gateway(broker: Broker) -> Gateway:
    gateway = Gateway(broker.bootstrap)
    gateway.check()
    return gateway


@pytest.fixture
def library_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """As if the listeners were none that our own plain-socket requests can speak to."""
    gateway = Gateway(broker.bootstrap)
    monkeypatch.setattr(gateway._link, "serves", lambda request: False)
    return gateway
