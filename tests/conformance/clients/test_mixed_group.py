"""Members from four clients in one group share partitions, and survive the kill of each."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import groups, members, processes, requests
from tests.support.fixtures import Broker
from tests.support.members import MemberProcess, read_by, wait_until_shared
from tests.support.requests import create_topic
from tests.support.wire import Wire

PARTITIONS = 8
CLIENTS = ("confluent-kafka", "java", "aiokafka", "franz-go")


class Traffic:
    """Records to every partition all the while, and a look at what is committed after each turn."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self.broker, self.group, self.topic = broker, group, topic
        self.written = 0  # records in each partition
        self.committed = [-1] * PARTITIONS
        self.went_back: list[tuple[int, int, int]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def look(self, wire: Wire) -> None:
        (entry,) = groups.fetch_group(wire, self.group, {self.topic: range(PARTITIONS)}).topics
        for part in entry.partitions:
            index, offset = part.partition_index, part.committed_offset
            if offset < self.committed[index]:
                self.went_back.append((index, self.committed[index], offset))
            self.committed[index] = offset

    def _run(self) -> None:
        with Wire(self.broker.address) as wire:
            while not self._is_over.is_set():
                for partition in range(PARTITIONS):
                    values = [b"%d" % (self.written + index) for index in range(5)]
                    requests.produce_values(wire, self.topic, values, partition=partition)
                self.written += 5
                self.look(wire)
                time.sleep(0.05)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_four_clients_in_one_group_survive_the_kill_of_each(
    broker: Broker, wire: Wire, group: str, tmp_path: Path
) -> None:
    topic = create_topic(wire, partitions=PARTITIONS)
    traffic = Traffic(broker, group, topic)

    def start(client: str) -> MemberProcess:
        return MemberProcess(client, broker.bootstrap, group, topic, tmp_path)

    with members.started() as everyone, traffic.flowing():
        crew = {client: start(client) for client in CLIENTS}
        everyone += crew.values()
        wait_until_shared(list(crew.values()), PARTITIONS)
        generations = 0
        for client in CLIENTS:
            crew.pop(client).kill()
            wait_until_shared(list(crew.values()), PARTITIONS)
            crew[client] = start(client)
            everyone.append(crew[client])
            wait_until_shared(list(crew.values()), PARTITIONS)
            generations += 2
        shown = groups.describe(wire, group)
        assert (shown.group_state, len(shown.members)) == ("Stable", 4)
        assert shown.protocol_data == "range"
        # A last kill with everybody's work still going on, and then a polite end.
        crew["confluent-kafka"].stop()
        rest = [crew[client] for client in CLIENTS[1:]]
        wait_until_shared(rest, PARTITIONS)
        traffic._is_over.set()
        traffic._thread.join()
        written = traffic.written

        def is_all_committed() -> bool:
            traffic.look(wire)
            return traffic.committed == [written] * PARTITIONS

        processes.wait_until(is_all_committed, 30, "the last commits", every=0.1)
        assert traffic.went_back == []
        missing = {
            (partition, offset) for partition in range(PARTITIONS) for offset in range(written)
        } - read_by(everyone)
        assert not missing, sorted(missing)[:20]
        for member in rest:
            member.stop()
        groups.wait_for_state(wire, group, "Empty")
