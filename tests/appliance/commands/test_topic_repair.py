"""A partition with damage that no crash explains: what the operator sees and may choose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.appliance.conftest import Odradek
from tests.support import record_batches, requests
from tests.support.odradek import OdradekBroker
from tests.support.wire import Wire

KAFKA_STORAGE_ERROR = 56
BATCHES = 5


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[OdradekBroker]:
    """Partition 1 has five segments of a batch each, the third with a flipped bit."""
    broker = OdradekBroker(tmp_path / "broker").start()
    try:
        with Wire(broker.address) as wire:
            requests.create_topic(
                wire, "orders", partitions=2, configs={"segment.bytes": str(1 << 20)}
            )
            data = record_batches.batch([b"v" * 600_000], timestamp=requests.now_ms())
            for _ in range(BATCHES):
                requests.produce(wire, "orders", data, partition=1)
            requests.produce_values(wire, "orders", [b"v"], partition=0)
        broker.kill9()
        (broker.logs / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        third = sorted((broker.logs / "orders-1").glob("*.log"))[2]
        content = bytearray(third.read_bytes())
        content[5000] ^= 1
        third.write_bytes(content)
        yield broker.start()
    finally:
        broker.close()


def test_a_damaged_partition_is_shown_and_cut(damaged: OdradekBroker, odradek: Odradek) -> None:
    data = ("--data", damaged.data)
    with Wire(damaged.address) as wire:
        assert requests.read_all(wire, "orders")[0].value == b"v"
        fetch = requests.try_produce(
            wire, "orders", record_batches.batch([b"v"], timestamp=requests.now_ms()), partition=1
        )
        assert fetch.error_code == KAFKA_STORAGE_ERROR
    done = odradek("topic", "repair", "orders", *data, "--format", "json")
    assert done.code == 10
    (found,) = done.data
    assert (found["topic"], found["partition"], found["offset"]) == ("orders", 1, 2)
    assert "00000000000000000002.log" in found["reason"]
    doctor = odradek("doctor", *data, "--listen", damaged.bootstrap, "-b", damaged.bootstrap)
    assert doctor.code == 10
    assert "topic repair orders" in doctor.err
    # Nothing is done without a word.
    assert odradek("topic", "repair", "orders", "--cut", *data).code == 2
    done = odradek("topic", "repair", "orders", "--cut", "--yes", *data, "--format", "json").ok()
    (row,) = done.data
    assert (row["partition"], row["start_offset"], row["end_offset"]) == (1, 0, 2)
    assert row["lost_bytes"] > 3 * 600_000 - 1000
    with Wire(damaged.address) as wire:
        assert requests.end_offset(wire, "orders", partition=1) == 2
        assert requests.produce_values(wire, "orders", [b"next"], partition=1) == 2
        values = [record.value for record in requests.read_all(wire, "orders", partition=1)]
        assert values == [b"v" * 600_000, b"v" * 600_000, b"next"]
    assert not odradek("topic", "repair", "orders", *data, "--format", "json").ok().data
    damaged.restart()  # cleanly: nothing is offline any more
    with Wire(damaged.address) as wire:
        assert requests.end_offset(wire, "orders", partition=1) == 3


def test_a_damaged_partition_is_set_aside(damaged: OdradekBroker, odradek: Odradek) -> None:
    data = ("--data", damaged.data)
    assert odradek("topic", "repair", "orders", "-p", 0, *data).code == 0  # that one is well
    done = odradek(
        "topic", "repair", "orders", "-p", 1, "--set-aside", "--yes", *data, "--format", "json"
    ).ok()
    assert [(row["start_offset"], row["end_offset"]) for row in done.data] == [(0, 0)]
    (aside,) = damaged.logs.glob("orders-1.*-stray")
    assert len(list(aside.glob("*.log"))) == BATCHES
    with Wire(damaged.address) as wire:
        assert requests.produce_values(wire, "orders", [b"next"], partition=1) == 0


def test_without_a_broker_there_is_nobody_to_ask(odradek: Odradek, tmp_path: Path) -> None:
    done = odradek("topic", "repair", "orders", "--data", tmp_path)
    assert done.code == 3
    assert "no broker runs" in done.err
