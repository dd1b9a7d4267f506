"""Several brokers of ours, with a real ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support import processes, wire
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.zookeeper import ZooKeeper


class Cluster:
    """Brokers 1 to `count`; any of them may be stopped, killed and started again by its number."""

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeper,
        chroot: str,
        *,
        count: int = 3,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.brokers = {
            number: OdradekBroker(
                directory / f"broker-{number}",
                {
                    "node.id": str(number),
                    "zookeeper.connect": f"{zookeeper.address}{chroot}",
                    "zookeeper.session.timeout.ms": "2000",
                    "offsets.topic.num.partitions": "6",
                    "group.initial.rebalance.delay.ms": "0",
                    **(properties or {}),
                },
            )
            for number in range(1, count + 1)
        }

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers.values():
                broker.start()
            self.wait_for_brokers(*self.brokers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.close()

    @property
    def running(self) -> list[OdradekBroker]:
        return [broker for broker in self.brokers.values() if broker.process is not None]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.running)

    def metadata(self, number: int, *topics: str) -> Any:
        """As that broker tells it."""
        with wire.Wire(self.brokers[number].address, timeout=30) as connection:
            return connection.request("metadata", 9, topics=[{"name": name} for name in topics])

    def wait_for_brokers(self, *numbers: int) -> None:
        """Until every one that runs knows exactly these, and one of them as the controller."""

        def agree() -> bool:
            told = [
                self.metadata(number)
                for number, broker in self.brokers.items()
                if broker.process is not None
            ]
            return len({answer.controller_id for answer in told}) == 1 and all(
                {broker.node_id for broker in answer.brokers} == set(numbers)
                and answer.controller_id in numbers
                for answer in told
            )

        processes.wait_until(agree, 60, f"a cluster of {numbers}", every=0.05)

    def controller(self) -> int:
        """As the running ones agree."""
        (controller,) = {
            self.metadata(number).controller_id
            for number, broker in self.brokers.items()
            if broker.process is not None
        }
        return int(controller)


def odradek(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `odradek cluster` says and does on it, whatever its status."""
    command = [sys.executable, "-m", "appliance", "-b", cluster.bootstrap, "cluster", *arguments]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
