"""What may happen to three brokers and their ZooKeeper, and how it ends again.

A fault begins, lasts, and ends; at the end everybody is there as before, and nothing that was acknowledged may be
lost. Faults may lie in one another; a broker is killed or frozen by one of them at a time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.chaos.network import DROP, OUTSIDE, REJECT, Network, address_of
from tests.support.cluster import Cluster
from tests.support.faults import EXIT_FAILED
from tests.support.odradek import OdradekBroker
from tests.support.zookeeper import ZooKeeper

#: Of two faults the one with the lower number begins first, and ends last: a broker that was killed starts again when
#: it can reach the others and ZooKeeper, and brokers are asked who leads while they answer.
ORDER: Final = {
    "slow disk": 1,
    "clock step": 1,
    "cut one way": 2,
    "cut both ways": 2,
    "cut off": 3,
    "cut from ZooKeeper": 4,
    "no ZooKeeper": 4,
    "kill ZooKeeper": 4,
}

ALONE_SHARE: Final = 0.7
#: In no other: nobody is left to whom it could happen, and whoever starts needs all others.
KILL_ALL: Final = "kill all"
#: A broker whose disk has failed lets others lead before it ends.
NOTICED_SECONDS: Final = 30


def order_of(name: str) -> int:
    """Of what is done to a broker's process: 0."""
    return ORDER.get(name, 0)


class Faults:
    """Of one cluster, whose brokers have their switches in `switches`/NUMBER where they are odd ones."""

    def __init__(
        self,
        cluster: Cluster,
        zookeeper: ZooKeeper,
        topic: str,
        dice: random.Random,
        switches: Path | None,
        network: Network | None = None,
    ) -> None:
        self._cluster, self._zookeeper, self._topic = cluster, zookeeper, topic
        self._dice = dice
        self._gone: set[int] = set()  # killed, frozen
        self.all: dict[str, Callable[[], Iterator[str]]] = {
            "kill leader": self.kill_leader,
            "kill follower": self.kill_follower,
            "kill controller": self.kill_controller,
            KILL_ALL: self.kill_all,
            "restart": self.restart,
            "freeze": self.freeze,
            "no ZooKeeper": self.no_zookeeper,
            "kill ZooKeeper": self.kill_zookeeper,
        }
        self._switches = switches
        if switches is not None:
            self.all |= {
                "slow disk": self.slow_disk,
                "failing disk": self.failing_disk,
                "clock step": self.clock_step,
            }
        self._network = network
        if network is not None:
            self.all |= {
                "cut one way": self.cut_one_way,
                "cut both ways": self.cut_both_ways,
                "cut from ZooKeeper": self.cut_from_zookeeper,
                "cut off": self.cut_off,
            }

    @contextmanager
    def one(self, name: str) -> Iterator[str]:
        """The fault lasts as long as the block; gives what it is."""
        steps = self.all[name]()
        told = next(steps)
        try:
            yield told
        finally:
            for _ in steps:
                pass

    def choose(self, pattern: str) -> None:
        """From now on there are only these."""
        self.all = {name: fault for name, fault in self.all.items() if fnmatch(name, pattern)}

    def some(self) -> list[str]:
        """One as a rule, sometimes two that lie in one another."""
        one = self._dice.choice(list(self.all))
        others = [
            n
            for n in self.all
            if n not in (one, KILL_ALL) and (order_of(n) != order_of(one) or not order_of(n))
        ]
        if one == KILL_ALL or not others or self._dice.random() < ALONE_SHARE:
            return [one]
        return sorted((one, self._dice.choice(others)), key=order_of)

    # Who ---------------------------------------------------------------------------------------

    def _present(self) -> list[int]:
        return [number for number in self._cluster.brokers if number not in self._gone]

    def _any(self) -> int:
        return self._dice.choice(self._present())

    def _leader(self) -> int:
        """Of some partition; anybody, where none of those who are there leads."""
        found = self._cluster.metadata(self._any(), self._topic).topics[0].partitions
        there = self._present()
        leaders = [each.leader_id for each in found if each.leader_id in there]
        return int(self._dice.choice(leaders or there))

    # What --------------------------------------------------------------------------------------

    @contextmanager
    def _without(self, number: int) -> Iterator[OdradekBroker]:
        self._gone.add(number)
        try:
            yield self._cluster.brokers[number]
        finally:
            self._gone.discard(number)

    def _kill(self, number: int, what: str) -> Iterator[str]:
        with self._without(number) as broker:
            broker.kill9()
            yield f"kill -9 of {number}, {what}"
            broker.start()

    def kill_leader(self) -> Iterator[str]:
        return self._kill(self._leader(), "a leader")

    def kill_follower(self) -> Iterator[str]:
        leader = self._leader()
        others = [number for number in self._present() if number != leader]
        return self._kill(self._dice.choice(others), "a follower")

    def kill_controller(self) -> Iterator[str]:
        told = int(self._cluster.metadata(self._any()).controller_id)
        return self._kill(told if told in self._present() else self._any(), "the controller")

    def kill_all(self) -> Iterator[str]:
        with ExitStack() as stack:
            brokers = [stack.enter_context(self._without(each)) for each in self._present()]
            for broker in brokers:
                broker.kill9()
            yield "kill -9 of all"
            for broker in self._dice.sample(brokers, len(brokers)):
                broker.start()

    def restart(self) -> Iterator[str]:
        with self._without(self._any()) as broker:
            broker.stop()
            yield f"{broker.properties['node.id']} is stopped by SIGTERM"
            broker.start()

    def freeze(self) -> Iterator[str]:
        number = self._leader()
        with self._without(number) as broker:
            os.kill(broker.pid, signal.SIGSTOP)
            yield f"{number} is stopped by SIGSTOP"
            os.kill(broker.pid, signal.SIGCONT)

    def no_zookeeper(self) -> Iterator[str]:
        self._zookeeper.stop()
        yield "no ZooKeeper"
        self._zookeeper.start()

    def kill_zookeeper(self) -> Iterator[str]:
        self._zookeeper.kill9()
        yield "kill -9 of ZooKeeper"
        self._zookeeper.start()

    def _switch(self, name: str, value: str, what: str) -> Iterator[str]:
        assert self._switches is not None
        number = self._any()
        path = self._switches / str(number) / name
        path.write_text(value)
        yield f"{number} {what}"
        with suppress(FileNotFoundError):
            path.unlink()

    def slow_disk(self) -> Iterator[str]:
        seconds = self._dice.choice((0.02, 0.2, 1.0))
        return self._switch("slow", str(seconds), f"takes {seconds} s for each sync of a file")

    def failing_disk(self) -> Iterator[str]:
        """It ends by itself, as soon as it has something to write."""
        assert self._switches is not None
        number = self._any()
        path = self._switches / str(number) / "fail"
        with self._without(number) as broker:
            path.write_text("")
            yield f"{number} has a disk that cannot be written to"
            process = broker.process
            assert process is not None
            try:
                status = process.wait(NOTICED_SECONDS)
            except subprocess.TimeoutExpired:
                broker.kill9()  # cut off from what it would write
            else:
                broker.process = None
                assert status == EXIT_FAILED, f"{number} ended with {status}"
            path.unlink()
            broker.start()

    def clock_step(self) -> Iterator[str]:
        ms = self._dice.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        return self._switch("step", str(ms), f"has a clock that is wrong by {ms} ms")

    # In a network of their own -----------------------------------------------------------------

    def _cut(self, what: str, *cuts: tuple[int, str]) -> Iterator[str]:
        assert self._network is not None
        verdict = self._dice.choice((DROP, REJECT))
        for number, towards in cuts:
            self._network.cut(number, towards, verdict)
        yield f"{what}: {verdict}"
        self._network.heal()

    def _two(self) -> tuple[int, int]:
        one, other = self._dice.sample(list(self._cluster.brokers), 2)
        return one, other

    def cut_one_way(self) -> Iterator[str]:
        one, other = self._two()
        return self._cut(f"{one} cannot send to {other}", (one, address_of(other)))

    def cut_both_ways(self) -> Iterator[str]:
        one, other = self._two()
        cuts = ((one, address_of(other)), (other, address_of(one)))
        return self._cut(f"{one} and {other} are cut from each other", *cuts)

    def cut_from_zookeeper(self) -> Iterator[str]:
        """And from clients, who are at the same address."""
        number = self._any()
        return self._cut(f"{number} cannot send to ZooKeeper and clients", (number, OUTSIDE))

    def cut_off(self) -> Iterator[str]:
        number = self._leader()
        others = [address_of(each) for each in self._cluster.brokers if each != number]
        return self._cut(f"{number} is cut off", *((number, each) for each in (*others, OUTSIDE)))
