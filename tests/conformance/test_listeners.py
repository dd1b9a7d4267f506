"""Several listeners with advertised addresses of their own: each client gets the one of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboard.gateway import Gateway
from tests.support import judge
from tests.support.apache import ApacheKafka
from tests.support.clients import ConfluentKafka, Message
from tests.support.odradek import OdradekBroker
from tests.support.wire import Wire


@dataclass(frozen=True, slots=True)
class Told:
    """A listener's port, and what its clients are told."""

    port: int
    host: str


@pytest.fixture(
    params=[OdradekBroker, pytest.param(ApacheKafka, marks=pytest.mark.slow)],
    ids=["odradek", "apache"],
)
def listeners(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Told]]:
    """Two names of this machine stand for its addresses in two networks."""
    told = [Told(judge.free_port(), "127.0.0.1"), Told(judge.free_port(), "localhost")]
    names = ("INSIDE", "OUTSIDE")
    bound = [f"{n}://127.0.0.1:{t.port}" for n, t in zip(names, told, strict=True)]
    properties = {
        "listeners": ",".join(bound),
        "advertised.listeners": ",".join(
            f"{n}://{t.host}:{t.port}" for n, t in zip(names, told, strict=True)
        ),
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    if request.param is ApacheKafka:
        controller = judge.free_port()
        properties["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        properties["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        properties["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
        properties["inter.broker.listener.name"] = "INSIDE"
    broker = request.param(tmp_path / "broker", properties)
    broker.port = told[0].port
    broker.start()
    yield told
    broker.close()


def test_metadata_names_the_address_of_the_listener(listeners: list[Told]) -> None:
    for told in listeners:
        (broker,) = Gateway(f"127.0.0.1:{told.port}").cluster().brokers
        assert (broker.host, broker.port) == (told.host, told.port)


def test_describe_cluster_names_the_address_of_the_listener(listeners: list[Told]) -> None:
    for told in listeners:
        with Wire(("127.0.0.1", told.port)) as wire:
            (broker,) = wire.request("describe_cluster", 1).brokers
            assert (broker.host, broker.port) == (told.host, told.port)


def test_clients_of_each_listener_read_what_the_others_wrote(listeners: list[Told]) -> None:
    Gateway(f"127.0.0.1:{listeners[0].port}").create_topics(["t"], partitions=1)
    client = ConfluentKafka()
    for told in listeners:
        client.write(f"127.0.0.1:{told.port}", "t", [Message(told.host.encode())])
    for told in listeners:
        found = client.read(f"127.0.0.1:{told.port}", "t", 2)
        assert [message.value for message in found] == [t.host.encode() for t in listeners]
