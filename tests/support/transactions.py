"""A transactional producer in the small, over raw requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.support import processes, requests
from tests.support.record_batches import Record, batch, batches
from tests.support.wire import Struct, Wire

TRANSACTION_KEY = 1
TRANSACTIONAL = 0x10
CONCURRENT_TRANSACTIONS = 51
NOT_READY = (14, 15, 16)
NOT_ENOUGH_REPLICAS = 19


def new_id(wire: Wire) -> str:
    """A transactional id that nobody used; its coordinator is ready."""
    transactional_id = f"tx-{uuid.uuid4().hex[:12]}"
    wait_for_coordinator(wire, transactional_id)
    return transactional_id


def wait_for_coordinator(wire: Wire, transactional_id: str) -> None:
    def is_ready() -> bool:
        found = wire.request(
            "find_coordinator", 4, key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id]
        )
        if found.coordinators[0].error_code != 0:
            return False
        return describe(wire, transactional_id).error_code not in NOT_READY

    processes.wait_until(is_ready, 30, f"the coordinator of {transactional_id}")


def describe(wire: Wire, transactional_id: str) -> Struct:
    answer = wire.request("describe_transactions", 0, transactional_ids=[transactional_id])
    (found,) = answer.transaction_states
    assert isinstance(found, Struct)
    return found


def wait_for_state(wire: Wire, transactional_id: str, state: str, seconds: float = 30) -> None:
    processes.wait_until(
        lambda: describe(wire, transactional_id).transaction_state == state,
        seconds,
        f"{transactional_id} is {state}",
    )


class TransactionalProducer:
    """Requests as they are; ``settled`` repeats one while the coordinator is busy with the last."""

    def __init__(self, wire: Wire, transactional_id: str | None = None) -> None:
        self.wire = wire
        self.transactional_id = transactional_id or new_id(wire)
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def try_init(self, *, version: int = 4, timeout_ms: int = 60_000, **fields: Any) -> int:
        answer = self.wire.request(
            "init_producer_id",
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
            **fields,
        )
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        else:
            assert answer.producer_id == -1
        code: int = answer.error_code
        return code

    def init(self, **fields: Any) -> TransactionalProducer:
        assert settled(lambda: self.try_init(**fields)) == 0
        return self

    @property
    def _name(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def try_add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        answer = self.wire.request(
            "add_partitions_to_txn",
            version,
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
            **{f"v3_and_below_{key}": value for key, value in self._name.items()},
        )
        return [
            each.partition_error_code
            for found in answer.results_by_topic_v3_and_below
            for each in sorted(found.results_by_partition, key=lambda one: one.partition_index)
        ]

    def add(self, topic: str, *partitions: int) -> None:
        code = settled(lambda: max(self.try_add(topic, *partitions)))
        assert code == 0

    def produce(
        self, topic: str, values: Sequence[Record | bytes], *, partition: int = 0, version: int = 11
    ) -> int:
        """The partition's verdict."""
        sequence = self.sequences.get((topic, partition), 0)
        data = batch(
            list(values),
            timestamp=requests.now_ms(),
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        fields = requests.produce_fields(topic, partition, data)
        answer = self.wire.request(
            "produce", version, **(fields | {"transactional_id": self.transactional_id})
        )
        code: int = answer.responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequences[topic, partition] = sequence + len(values)
        return code

    def add_offsets(self, group: str, *, version: int = 3) -> int:
        answer = self.wire.request("add_offsets_to_txn", version, group_id=group, **self._name)
        code: int = answer.error_code
        return code

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 3,
        topic_id: object = None,
        **fields: Any,
    ) -> int:
        """``topic_id`` instead of the name from version 6 on."""
        answer = self.wire.request(
            "txn_offset_commit",
            version,
            group_id=group,
            topics=[
                {
                    "name" if topic_id is None else "topic_id": topic_id or topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
            **self._name,
            **fields,
        )
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def try_end(self, is_commit: bool, *, version: int = 3) -> int:
        answer = self.wire.request("end_txn", version, committed=is_commit, **self._name)
        code: int = answer.error_code
        return code

    def try_end_and_raise(self, is_commit: bool, **name: object) -> tuple[int, int, int]:
        """By ``transaction.version`` 2: the code, and the name for the next transaction."""
        answer = self.wire.request("end_txn", 5, committed=is_commit, **{**self._name, **name})
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def end_and_raise(self, is_commit: bool) -> None:
        told = []

        def ask() -> int:
            told[:] = self.try_end_and_raise(is_commit)
            return told[0]

        assert settled(ask) == 0
        self.producer_id, self.epoch = told[1:]
        self.sequences.clear()

    def end(self, is_commit: bool) -> None:
        assert settled(lambda: self.try_end(is_commit)) == 0


def settled(request: Callable[[], int]) -> int:
    """The code of a request, once the coordinator is done with what came before."""
    codes: list[int] = []

    def is_settled() -> bool:
        codes[:] = [request()]
        return codes[0] not in (CONCURRENT_TRANSACTIONS, *NOT_READY)

    processes.wait_until(is_settled, 30, "the end of what came before")
    return codes[0]


def committed_values(wire: Wire, topic: str, *, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in committed_records(wire, topic, partition=partition)]


def committed_records(wire: Wire, topic: str, *, partition: int = 0) -> list[Record]:
    """What a read_committed consumer gets: up to the last stable offset, without what was aborted."""
    found: list[Record] = []
    position = requests.start_offset(wire, topic, partition=partition)
    while True:
        part = requests.fetch(
            wire, topic, position, partition=partition, isolation_level=1, max_wait=0
        )
        assert part.error_code == 0
        if not part.records:
            assert position == part.last_stable_offset
            return found
        pending = sorted(
            (each.first_offset, each.producer_id) for each in part.aborted_transactions or ()
        )
        aborting: set[int] = set()
        for one in batches(part.records):
            position = one.last_offset + 1
            while pending and pending[0][0] <= one.last_offset:
                aborting.add(pending.pop(0)[1])
            if one.is_control:
                aborting.discard(one.producer_id)
            elif not one.attributes & TRANSACTIONAL or one.producer_id not in aborting:
                found += one.records()


def leave_hanging(wire: Wire, broker_name: str, topic: str) -> TransactionalProducer:
    """A transaction that its partition holds open and no coordinator knows of."""
    producer = TransactionalProducer(wire).init()
    if broker_name == "apache":
        key = "transaction.partition.verification.enable"
        requests.alter_config(wire, "", key, "false", resource_type=requests.BROKER_RESOURCE)

        def is_taken() -> bool:
            return producer.produce(topic, [b"hangs"]) == 0

        processes.wait_until(is_taken, 30, "a batch that nobody verified")
    else:
        producer.add(topic, 0)
        assert producer.produce(topic, [b"hangs"]) == 0
        requests.delete_topic(wire, "__transaction_state")
        wait_for_coordinator(wire, producer.transactional_id)
    return producer
