"""Brokers of ours whose work can be made to fail (`tests.support.faulty_tasks`), seen from outside."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.odradek import OdradekBroker
from tests.support.zookeeper import ZooKeeper

EXIT_FAILED = 70


def make_faulty(broker: OdradekBroker) -> None:
    """Before it is started."""
    faults = broker.directory / "faults"
    faults.mkdir(parents=True)
    broker.program = ("tests.support.faulty_tasks", str(faults))


def faulty_cluster(zookeeper: ZooKeeper, directory: Path, **properties: str) -> Cluster:
    cluster = Cluster(directory, zookeeper, f"/{directory.name}", properties=properties)
    for broker in cluster.brokers.values():
        make_faulty(broker)
    return cluster


def plant(broker: OdradekBroker, fault: str, times: int | None) -> Path:
    """None: until the file is taken away."""
    file = Path(broker.program[1]) / fault
    file.write_text("" if times is None else str(times))
    return file


def wait_for_end(broker: OdradekBroker) -> int:
    """Its exit status."""
    assert broker.process is not None
    status = broker.process.wait(60)
    broker.process = None
    return status
