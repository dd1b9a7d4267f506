"""Exactly once, while the job and the broker are killed: output equals input, once, in order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import copy_jobs, groups, processes, requests
from tests.support.fixtures import broker_with_small_internal_topics
from tests.support.job import Job
from tests.support.odradek import OdradekBroker
from tests.support.transactions import (
    TransactionalProducer,
    committed_values,
    describe,
    wait_for_coordinator,
    wait_for_state,
)
from tests.support.wire import Wire, WireError

PARTITIONS = 2
TRANSACTION_COORDINATOR_FENCED = 52
broker = broker_with_small_internal_topics()


def copied(broker: OdradekBroker) -> list[list[bytes | None]]:
    with Wire(broker.address, timeout=60) as wire:
        return [committed_values(wire, "target", partition=each) for each in range(PARTITIONS)]


@pytest.mark.slow
@pytest.mark.timeout(600 + 25 * copy_jobs.KILLS)
@pytest.mark.parametrize("program", copy_jobs.PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_job_is_killed_and_so_is_the_broker(
    broker: OdradekBroker, tmp_path: Path, program: Callable[[], list[str]], seed: int
) -> None:
    dice = random.Random(seed)
    inputs = [[b"%d-%d" % (p, n) for n in range(copy_jobs.COUNT)] for p in range(PARTITIONS)]
    with Wire(broker.address) as wire:
        for name in ("source", "target"):
            requests.create_topic(wire, name, partitions=PARTITIONS)
        for partition, values in enumerate(inputs):
            for start in range(0, len(values), 100):
                requests.produce_values(
                    wire, "source", values[start : start + 100], partition=partition
                )
    command = [*program(), broker.bootstrap, "copier", "copy", "source", "target"]
    job = Job(command, tmp_path / "job.txt")
    job.start()
    kills: Counter[str] = Counter()
    try:
        for _ in range(copy_jobs.KILLS):
            goal = job.line_count + dice.randrange(1, 8)

            def is_further(goal: int = goal) -> bool:
                job.keep_alive()
                return job.line_count >= goal or is_done(broker, inputs)

            processes.wait_until(is_further, 120, "transactions")
            if is_done(broker, inputs):
                kills["too late"] += 1
            if dice.random() < 0.5:
                kills["job"] += 1
                job.kill()
                job.start()
            else:
                kills["broker"] += 1
                broker.kill9()
                broker.start()

        def is_over() -> bool:
            job.keep_alive()
            return is_done(broker, inputs)

        processes.wait_until(is_over, 300 + 5 * copy_jobs.KILLS, "the end")
        print(f"{dict(kills)} kills, {job.line_count} transactions, {job.lives} jobs")
    finally:
        job.kill()
    for partition, (found, values) in enumerate(zip(copied(broker), inputs, strict=True)):
        expected = [b"copy of " + value for value in values]
        copy_jobs.check(found, expected, f"target-{partition}")


def is_done(broker: OdradekBroker, inputs: list[list[bytes]]) -> bool:
    with Wire(broker.address, timeout=60) as wire:
        groups.wait_for_coordinator(wire, "copier")
        return all(
            groups.committed_offset(wire, "copier", "source", partition=partition) == len(values)
            for partition, values in enumerate(inputs)
        )


def test_offsets_do_not_expire_under_an_open_transaction(broker: OdradekBroker) -> None:
    """C061: neither the staged offset, nor the one that holds if the transaction is aborted."""
    with Wire(broker.address) as wire:
        requests.create_topic(wire, "t", partitions=2)
        group = groups.new_group(wire)
        for partition in range(2):
            part = {"partition_index": partition, "committed_offset": 100}
            fields = groups.commit_fields(group, {"t": [part]})
            answer = wire.request("offset_commit", 4, **fields, retention_time=1)
            assert answer.topics[0].partitions[0].error_code == 0
        producer = TransactionalProducer(wire).init()
        assert producer.add_offsets(group) == 0
        assert producer.commit_offset(group, "t", 200) == 0

        def is_expired() -> bool:
            broker.control("expire_offsets")
            return groups.committed_offset(wire, group, "t", partition=1) == -1

        processes.wait_until(is_expired, 30, "the other partition's offset expires")
        assert groups.committed_offset(wire, group, "t") == 100
    broker.kill9()
    broker.start()
    with Wire(broker.address) as wire:
        wait_for_coordinator(wire, producer.transactional_id)
        groups.wait_for_coordinator(wire, group)
        producer.wire = wire
        broker.control("expire_offsets")
        assert groups.committed_offset(wire, group, "t") == 100
        producer.end(True)
        processes.wait_until(
            lambda: groups.committed_offset(wire, group, "t") == 200, 30, "the marker"
        )
    broker.restart()
    with Wire(broker.address) as wire:
        groups.wait_for_coordinator(wire, group)
        assert groups.committed_offset(wire, group, "t") == 200


# --- kill -9 at each step ---------------------------------------------------------------------


def added(producer: TransactionalProducer) -> None:
    producer.add("t", 0)


def produced(producer: TransactionalProducer) -> None:
    added(producer)
    assert producer.produce("t", [b"v"]) == 0


def with_offsets(producer: TransactionalProducer) -> None:
    produced(producer)
    assert producer.add_offsets("g") == 0
    assert producer.commit_offset("g", "t", 7) == 0


@pytest.mark.parametrize("step", [added, produced, with_offsets])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_goes_on_after_the_brokers_death(
    broker: OdradekBroker, step: Callable[[TransactionalProducer], None], is_commit: bool
) -> None:
    with Wire(broker.address) as wire:
        requests.create_topic(wire, "t")
        groups.find_coordinator(wire, "g")
        producer = TransactionalProducer(wire).init()
        step(producer)
    broker.kill9()
    broker.start()
    with Wire(broker.address) as wire:
        wait_for_coordinator(wire, producer.transactional_id)
        groups.wait_for_coordinator(wire, "g")
        producer.wire = wire
        assert describe(wire, producer.transactional_id).transaction_state == "Ongoing"
        assert committed_values(wire, "t") == []
        producer.end(is_commit)
        wait_for_state(
            wire, producer.transactional_id, f"Complete{'Commit' if is_commit else 'Abort'}"
        )
        kept = [b"v"] if is_commit and step is not added else []
        assert committed_values(wire, "t") == kept
        offset = 7 if is_commit and step is with_offsets else -1
        assert groups.committed_offset(wire, "g", "t") == offset
        # And it is good for another one.
        producer.add("t", 0)
        assert producer.produce("t", [b"w"]) == 0
        producer.end(True)
        wait_for_state(wire, producer.transactional_id, "CompleteCommit")
        assert committed_values(wire, "t") == [*kept, b"w"]


def put_and_committed(producer: TransactionalProducer) -> None:
    assert producer.produce("t", [b"v"], version=12) == 0
    assert producer.commit_offset("g", "t", 7, version=5) == 0


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_answered", [True, False])
def test_an_end_that_raises_the_epoch_is_repeated_after_the_brokers_death(
    broker: OdradekBroker, is_commit: bool, is_answered: bool
) -> None:
    outcome = f"Complete{'Commit' if is_commit else 'Abort'}"
    with Wire(broker.address) as wire:
        requests.create_topic(wire, "t")
        groups.find_coordinator(wire, "g")
        producer = TransactionalProducer(wire).init(version=5)
        put_and_committed(producer)
        if is_answered:
            assert producer.try_end_and_raise(is_commit)[0] == 0
    broker.kill9()
    broker.start()
    with Wire(broker.address) as wire:
        wait_for_coordinator(wire, producer.transactional_id)
        groups.wait_for_coordinator(wire, "g")
        producer.wire = wire
        producer.end_and_raise(is_commit)  # as a client does that has heard nothing
        assert producer.epoch == 1
        wait_for_state(wire, producer.transactional_id, outcome)
        assert committed_values(wire, "t") == ([b"v"] if is_commit else [])
        assert groups.committed_offset(wire, "g", "t") == (7 if is_commit else -1)
        put_and_committed(producer)
        producer.end_and_raise(True)
        wait_for_state(wire, producer.transactional_id, "CompleteCommit")
        assert committed_values(wire, "t") == ([b"v", b"v"] if is_commit else [b"v"])


def test_what_was_answered_survives_and_the_rest_is_whole(broker: OdradekBroker) -> None:
    """The broker dies while transactions of several partitions end: each is there on all of its
    partitions or on none, and those that were answered are."""
    with Wire(broker.address) as wire:
        requests.create_topic(wire, "t", partitions=3)
        producer = TransactionalProducer(wire).init()
        answered = 0
        try:
            for number in range(200):
                producer.add("t", 0, 1, 2)
                for partition in range(3):
                    assert producer.produce("t", [b"%d" % number], partition=partition) == 0
                if number == 100:
                    broker.kill9()
                producer.end(True)
                answered = number + 1
        except (WireError, OSError):
            pass
    broker.start()
    with Wire(broker.address) as wire:
        heir = TransactionalProducer(wire, producer.transactional_id)
        wait_for_coordinator(wire, producer.transactional_id)
        heir.init()
        found = [committed_values(wire, "t", partition=partition) for partition in range(3)]
    assert answered == 100
    assert found[0] == [b"%d" % number for number in range(len(found[0]))]
    assert len(found[0]) >= answered
    assert found == [found[0]] * 3


def test_old_coordinators_stay_fenced_after_a_crash(broker: OdradekBroker) -> None:
    def write(wire: Wire, coordinator_epoch: int) -> int:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": [{"name": "t", "partition_indexes": [0]}],
            "coordinator_epoch": coordinator_epoch,
        }
        answer = wire.request("write_txn_markers", 1, markers=[marker])
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    with Wire(broker.address) as wire:
        requests.create_topic(wire, "t")
        producer = TransactionalProducer(wire).init()
        assert write(wire, 50) == 0
        assert write(wire, 49) == TRANSACTION_COORDINATOR_FENCED
    for stop in (broker.kill9, broker.stop):
        stop()
        broker.start()
        with Wire(broker.address) as wire:
            assert write(wire, 49) == TRANSACTION_COORDINATOR_FENCED
            assert write(wire, 50) == 0
