"""Fetch: limits, long polls, what an offset inside a batch or out of range gets."""

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import clients, processes, requests
from tests.support import record_batches as rb
from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.requests import create_topic, fetch, fetch_fields, now_ms, produce, read_all
from tests.support.wire import Wire

Broker = ApacheKafka | OdradekBroker
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 3, 74, 75
UNKNOWN_TOPIC_ID, INVALID_REQUEST = 100, 42
CORRUPT_MESSAGE, STORAGE_ERROR = 2, 56
MIB = 1 << 20


def fill(wire: Wire, topic: str, batches: int, *, size: int = 100, partition: int = 0) -> None:
    for index in range(batches):
        value = b"%06d" % index + b"." * (size - 6)
        wire.send(
            "produce",
            9,
            **requests.produce_fields(topic, partition, batch([value], timestamp=now_ms())),
        )
    for index in range(batches):
        assert wire.receive().responses[0].partition_responses[0].base_offset == index


def base_offsets(data: bytes | None) -> list[int]:
    return [found.base_offset for found in rb.batches(data or b"")]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    values = [b"a", b"b", b"c"]
    requests.produce_values(wire, name, values)
    topic = requests.topic_id(wire, name) if version >= 13 else name
    answer = wire.request("fetch", version, **fetch_fields(topic, {0: 0}))
    (entry,) = answer.responses
    assert (entry.topic_id if version >= 13 else entry.topic) == topic
    (part,) = entry.partitions
    assert (part.partition_index, part.error_code, part.high_watermark) == (0, 0, 3)
    assert part.last_stable_offset == 3
    assert getattr(part, "log_start_offset", 0) == 0
    assert not part.aborted_transactions
    assert getattr(part, "preferred_read_replica", -1) == -1
    assert [record.value for record in rb.records(part.records)] == values
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (0, 0)


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_errors_come_in_the_layout_that_was_asked_for(wire: Wire, version: int) -> None:
    # C005
    name = create_topic(wire)
    for topic, partition, error_code in (
        (requests.new_topic_name(), 0, UNKNOWN_TOPIC),
        (name, 7, UNKNOWN_TOPIC),
        (name, -1, UNKNOWN_TOPIC),
    ):
        part = fetch(wire, topic, 0, partition=partition, version=version)
        assert (part.partition_index, part.error_code) == (partition, error_code)
        assert part.high_watermark == -1
        assert not part.records


@pytest.mark.parametrize("version", [13, 16, 17])
def test_an_unknown_topic_id_spoils_only_its_own_part(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"v"])
    known, unknown = requests.topic_id(wire, name), uuid.uuid4()
    fields = fetch_fields(known, {0: 0})
    fields["topics"] += fetch_fields(unknown, {0: 0})["topics"]
    answer = wire.request("fetch", version, **fields)
    found = {entry.topic_id: entry.partitions[0] for entry in answer.responses}
    assert answer.error_code == 0
    assert (found[known].error_code, found[known].high_watermark) == (0, 1)
    assert found[unknown].error_code == UNKNOWN_TOPIC_ID


def test_the_id_of_a_deleted_topic_is_unknown(wire: Wire) -> None:
    name = create_topic(wire)
    old = requests.topic_id(wire, name)
    requests.delete_topic(wire, name)
    create_topic(wire, name)
    assert fetch(wire, old, 0, version=13).error_code == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 4, 100, 1 << 60])
def test_an_offset_out_of_range_is_told_at_once(wire: Wire, offset: int) -> None:
    # C188: at once, not after max_wait, and not mixed with records.
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"a", b"b", b"c"])
    start = time.monotonic()
    part = fetch(wire, name, offset, max_wait=10_000, min_bytes=MIB)
    assert time.monotonic() - start < 5
    assert part.error_code == OFFSET_OUT_OF_RANGE
    assert not part.records


def test_an_offset_below_the_start_is_out_of_range(wire: Wire) -> None:
    name = create_topic(wire)
    for _ in range(3):
        requests.produce_values(wire, name, [b"v"])
    assert requests.delete_records(wire, name, 2).error_code == 0
    assert fetch(wire, name, 1).error_code == OFFSET_OUT_OF_RANGE
    part = fetch(wire, name, 2)
    assert (part.error_code, part.log_start_offset) == (0, 2)
    assert base_offsets(part.records) == [2]


def test_an_offset_inside_a_batch_gets_the_whole_batch(wire: Wire) -> None:
    name = create_topic(wire)
    for codec in range(5):
        requests.produce_values(wire, name, [b"%d" % i for i in range(10)], codec=codec)
    for offset in range(50):
        part = fetch(wire, name, offset)
        first = next(rb.batches(part.records))
        assert (first.base_offset, first.last_offset) == (offset // 10 * 10, offset // 10 * 10 + 9)


def test_the_end_of_the_log_is_empty_but_no_error(wire: Wire) -> None:
    name = create_topic(wire)
    for end in range(3):
        part = fetch(wire, name, end, max_wait=0)
        assert (part.error_code, part.high_watermark) == (0, end)
        assert part.records in (b"", None)
        requests.produce_values(wire, name, [b"v"])


# ------------------------------------------------------------------------------------ limits


def test_whole_batches_up_to_the_limit_of_the_partition(wire: Wire) -> None:
    name = create_topic(wire)
    fill(wire, name, 20)
    size = len(fetch(wire, name, 19).records)
    for limit in (size, size + 1, 3 * size, 3 * size + size // 2, 1000 * size):
        records = fetch(wire, name, 0, partition_max_bytes=limit).records
        found = base_offsets(records)
        assert found == list(range(min(max(limit // size, 1), 20)))
        assert len(records) <= max(limit, size)


def test_the_first_batch_comes_whole_even_above_the_limits(wire: Wire) -> None:
    # C179
    name = create_topic(wire, partitions=3, configs={"max.message.bytes": "5000000"})
    requests.produce_values(wire, name, [b"small"])
    requests.produce_values(wire, name, [b"x" * 3_000_000])
    requests.produce_values(wire, name, [b"small"])
    requests.produce_values(wire, name, [b"other"], partition=1)
    for options in (
        {"partition_max_bytes": 1},
        {"partition_max_bytes": 100_000, "max_bytes": MIB},
        {"max_bytes": 1},
        {"partition_max_bytes": 0, "max_bytes": 0},
    ):
        part = fetch(wire, name, 1, **options)
        found = list(rb.batches(part.records))
        assert [one.base_offset for one in found][:1] == [1], options
        assert len(found[0].records()[0].value) == 3_000_000
        assert len(found) == 1
    # Empty partitions in front do not use the privilege up, partitions behind do not get it.
    fields = fetch_fields(name, {2: 0, 0: 1, 1: 0}, partition_max_bytes=1, max_bytes=1)
    (entry,) = wire.request("fetch", 11, **fields).responses
    found = {part.partition_index: base_offsets(part.records) for part in entry.partitions}
    assert found == {2: [], 0: [1], 1: []}


def test_the_budget_goes_to_partitions_in_request_order(wire: Wire) -> None:
    name = create_topic(wire, partitions=4)
    for index in range(4):
        fill(wire, name, 5, size=1000, partition=index)
    size = len(fetch(wire, name, 4).records)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        fields = fetch_fields(name, dict.fromkeys(order, 0), max_bytes=7 * size)
        (entry,) = wire.request("fetch", 11, **fields).responses
        assert [part.partition_index for part in entry.partitions] == order
        counts = [len(base_offsets(part.records)) for part in entry.partitions]
        assert counts[:2] == [5, 2]
        assert counts[2:] == [0, 0]


def test_no_client_starves_when_it_rotates(wire: Wire) -> None:
    name = create_topic(wire, partitions=20)
    for index in range(20):
        requests.produce_values(wire, name, [b"x" * 5000], partition=index)
    pending = list(range(20))
    for _ in range(20):
        fields = fetch_fields(name, dict.fromkeys(pending, 0), max_bytes=1, partition_max_bytes=1)
        (entry,) = wire.request("fetch", 11, **fields).responses
        served = [part.partition_index for part in entry.partitions if part.records]
        assert served == pending[:1]
        pending.remove(served[0])
    assert pending == []


# --------------------------------------------------------------------------------- long poll


def test_a_long_poll_ends_with_the_record_it_waits_for(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire)
    with Wire(broker.address) as reader:
        start = time.monotonic()
        reader.send("fetch", 11, **fetch_fields(name, {0: 0}, max_wait=30_000))
        time.sleep(0.2)
        requests.produce_values(wire, name, [b"at last"])
        answer = reader.receive()
        assert 0.15 < time.monotonic() - start < 15
    (part,) = answer.responses[0].partitions
    assert [record.value for record in rb.records(part.records)] == [b"at last"]


def test_a_long_poll_ends_empty_after_its_time(wire: Wire) -> None:
    name = create_topic(wire)
    start = time.monotonic()
    part = fetch(wire, name, 0, max_wait=300)
    assert 0.29 < time.monotonic() - start < 10
    assert (part.error_code, part.high_watermark) == (0, 0)
    assert not part.records


def test_min_bytes_are_waited_for(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    with Wire(broker.address) as reader:
        fields = fetch_fields(name, {0: 0, 1: 0}, max_wait=30_000, min_bytes=5000)
        reader.send("fetch", 11, **fields)
        requests.produce_values(wire, name, [b"x" * 3000])
        time.sleep(0.1)
        requests.produce_values(wire, name, [b"x" * 3000], partition=1)
        answer = reader.receive()
    sizes = [len(part.records) for part in answer.responses[0].partitions]
    assert sum(sizes) >= 6000
    start = time.monotonic()
    part = fetch(wire, name, 0, max_wait=200, min_bytes=MIB)
    assert time.monotonic() - start > 0.19
    assert len(part.records) > 3000


def test_an_error_ends_a_long_poll_at_once(wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    start = time.monotonic()
    fields = fetch_fields(name, {0: 0, 1: 9}, max_wait=30_000)
    (entry,) = wire.request("fetch", 11, **fields).responses
    assert time.monotonic() - start < 15
    assert {p.partition_index: p.error_code for p in entry.partitions} == {0: 0, 1: 1}


def test_deleting_the_topic_ends_a_long_poll(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire)
    with Wire(broker.address) as reader:
        reader.send("fetch", 11, **fetch_fields(name, {0: 0}, max_wait=15_000))
        time.sleep(0.1)
        start = time.monotonic()
        requests.delete_topic(wire, name)
        (part,) = reader.receive().responses[0].partitions
        assert time.monotonic() - start < 10
    assert part.error_code in (3, 6)


def test_a_long_poll_on_one_connection_does_not_hold_up_another(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire)
    waiting = [Wire(broker.address) for _ in range(20)]
    try:
        for reader in waiting:
            reader.send("fetch", 11, **fetch_fields(name, {0: 0}, max_wait=20_000))
        start = time.monotonic()
        for _ in range(20):
            assert wire.request("metadata", 9, topics=[]).brokers
        assert time.monotonic() - start < 10
        requests.produce_values(wire, name, [b"for all"])
        for reader in waiting:
            (part,) = reader.receive().responses[0].partitions
            assert len(rb.records(part.records)) == 1
    finally:
        for reader in waiting:
            reader.close()


def test_answers_keep_the_order_of_requests_behind_a_long_poll(wire: Wire) -> None:
    name = create_topic(wire)
    wire.send("fetch", 11, **fetch_fields(name, {0: 0}, max_wait=300))
    wire.send("metadata", 9, topics=[])
    wire.send("produce", 9, **requests.produce_fields(name, 0, batch([b"v"], timestamp=now_ms())))
    assert wire.receive().responses[0].partitions[0].error_code == 0
    assert wire.receive().brokers
    assert wire.receive().responses[0].partition_responses[0].base_offset == 0


def test_empty_answers_below_the_high_watermark_never_happen(wire: Wire) -> None:
    # C187: some clients skip to the high watermark when they see one.
    name = create_topic(wire)
    fill(wire, name, 300, size=1000)
    for offset in range(0, 300, 7):
        for options in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {}):
            part = fetch(wire, name, offset, max_wait=0, **options)
            assert base_offsets(part.records)[0] == offset
            assert part.high_watermark == 300


# ------------------------------------------------------------------------------- isolation


def test_read_committed_without_transactions_reads_everything(wire: Wire) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"a", b"b"])
    part = fetch(wire, name, 0, isolation_level=1)
    assert (part.last_stable_offset, part.high_watermark) == (2, 2)
    assert part.aborted_transactions in ([], None)
    assert len(rb.records(part.records)) == 2


def test_leader_epochs_are_checked(wire: Wire) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"v"])
    (partition,) = requests.describe_topic(wire, name).partitions
    current = partition.leader_epoch
    assert fetch(wire, name, 0, current_leader_epoch=current).error_code == 0
    found = fetch(wire, name, 0, current_leader_epoch=current + 1)
    assert found.error_code == UNKNOWN_LEADER_EPOCH
    if current > 0:
        found = fetch(wire, name, 0, current_leader_epoch=current - 1)
        assert found.error_code == FENCED_LEADER_EPOCH


# ---------------------------------------------------------------------- reading while written


def test_readers_of_every_size_see_one_sequence_while_it_is_written(
    broker: Broker, wire: Wire
) -> None:
    # C029: segments roll all the time; no checksum failure, no gap, no duplicate.
    name = create_topic(wire, configs={"segment.bytes": "1048576"})
    total, sizes = 3000, (1024, 65536, MIB, 50 * MIB)
    failures: list[BaseException] = []

    def read(size: int) -> None:
        try:
            with Wire(broker.address) as reader:
                offset = 0
                while offset < total:
                    part = fetch(reader, name, offset, partition_max_bytes=size)
                    assert part.error_code == 0, part
                    for found in rb.batches(part.records):
                        assert found.is_crc_right
                        assert found.base_offset == offset
                        (record,) = found.records()
                        assert record.value[:6] == b"%06d" % offset
                        offset += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    try:
        fill(wire, name, total, size=5000)
    finally:
        for thread in threads:
            thread.join(120)
    assert failures == []


def test_a_reader_that_goes_away_leaves_nothing_behind(odradek_broker: OdradekBroker) -> None:
    # C001: pending fetches of clients that are gone.
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)

        def abort(count: int) -> None:
            for _ in range(count):
                reader = Wire(odradek_broker.address)
                reader.send("fetch", 11, **fetch_fields(name, {0: 0}, max_wait=600_000))
                reader.close()
            wire.request("metadata", 9, topics=[])

        abort(100)
        descriptors = 30
        before = odradek_broker.anonymous_kib()
        abort(400)
        assert odradek_broker.anonymous_kib() - before < 4096
        processes.wait_until(
            lambda: odradek_broker.descriptor_count() <= descriptors + 5, 30, "the descriptors back"
        )
        requests.produce_values(wire, name, [b"v"])
        assert [record.value for record in read_all(wire, name)] == [b"v"]
        assert produce(wire, name, batch([b"w"], timestamp=now_ms())) == 1


@pytest.mark.parametrize("garbled", ["header", "size", "missing"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["active", "sealed"])
def test_a_segment_that_cannot_be_read_is_an_error_of_its_partition(
    odradek_broker: OdradekBroker, garbled: str, is_sealed: bool
) -> None:
    # C005
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire, partitions=2, configs={"segment.bytes": "1048576"})
        topic = requests.topic_id(wire, name)
        requests.produce_values(wire, name, [b"healthy"], partition=1)
        for _ in range(20 if is_sealed else 4):
            requests.produce_values(wire, name, [b"." * 100_000])
        odradek_broker.trim()
        directory = odradek_broker.logs / f"{name}-0"
        damaged = min(directory.glob("*.log"))
        with damaged.open("r+b") as file:
            if garbled == "header":
                file.write(b"\xff" * 61)
            elif garbled == "size":
                file.seek(8)
                file.write(b"\x7f\xff\xff\xff")
            else:
                file.truncate(0)
        for version in (4, 7, 11, 12, 13, 17):
            asked = topic if version >= 13 else name
            fields = fetch_fields(asked, {0: 0, 1: 0}, max_wait=0)
            answer = wire.request("fetch", version, **fields)
            assert getattr(answer, "error_code", 0) == 0
            (entry,) = answer.responses
            assert (entry.topic_id if version >= 13 else entry.topic) == asked
            parts = {part.partition_index: part for part in entry.partitions}
            assert parts[0].error_code in (CORRUPT_MESSAGE, STORAGE_ERROR), version
            assert not parts[0].records
            assert parts[1].error_code == 0
            assert [found.value for found in rb.records(parts[1].records)] == [b"healthy"]


def test_slow_reads_give_nothing_or_records_but_no_error(tmp_path: Path) -> None:
    # C007: reading takes four times as long as the client waits.
    from confluent_kafka import TopicPartition

    switch = tmp_path / "slow"
    slow = OdradekBroker(tmp_path / "broker", program=("tests.support.slow_broker", str(switch)))
    with slow, Wire(slow.address, timeout=60) as wire:
        name = create_topic(wire, configs={"segment.bytes": "1048576"})
        fill(wire, name, 300, size=9000)
        switch.write_text("2.0")
        begun = time.monotonic()
        part = fetch(wire, name, 0, max_wait=500)
        assert part.error_code == 0
        assert base_offsets(part.records)[:1] in ([], [0])
        assert time.monotonic() - begun >= 0.5
        assert requests.end_offset(wire, name) == 300
        consumer = clients.ConfluentKafka().consumer(
            slow.bootstrap, **{"fetch.wait.max.ms": 500, "fetch.message.max.bytes": 1_000_000}
        )
        try:
            consumer.assign([TopicPartition(name, 0, 0)])
            found: list[int] = []
            end = time.monotonic() + 60
            while len(found) < 300 and time.monotonic() < end:
                for message in consumer.consume(300, 0.2):
                    assert message.error() is None, message.error()
                    found.append(message.offset())
            assert found == list(range(300))
        finally:
            consumer.close()


def test_readers_that_retention_overtakes(start_odradek: Callable[..., OdradekBroker]) -> None:
    # C029, with retention: what is read is whole and in order; who falls behind is told, once each
    # time that the start has moved past it.
    broker = start_odradek({"log.retention.check.interval.ms": "100"})
    total, sizes = 2000, (1024, 65536, MIB, 50 * MIB)
    failures: list[BaseException] = []
    overtaken: list[int] = []
    with Wire(broker.address) as wire:
        configs = {
            "segment.bytes": "1048576",
            "retention.bytes": str(3 * MIB),
            "file.delete.delay.ms": "0",
        }
        name = create_topic(wire, configs=configs)

        def read(size: int) -> None:
            try:
                with Wire(broker.address) as reader:
                    offset = 0
                    while offset < total:
                        part = fetch(reader, name, offset, partition_max_bytes=size)
                        if part.error_code == OFFSET_OUT_OF_RANGE:
                            start = requests.start_offset(reader, name)
                            assert start > offset
                            overtaken.append(size)
                            offset = start
                            continue
                        assert part.error_code == 0, part
                        for found in rb.batches(part.records):
                            assert found.is_crc_right
                            assert found.base_offset == offset
                            (record,) = found.records()
                            assert record.value[:6] == b"%06d" % offset
                            offset += 1
                        if size == 1024 and not overtaken:  # one who falls behind
                            processes.wait_until(
                                lambda: requests.start_offset(reader, name) > offset,
                                60,
                                "retention",
                            )
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read, args=(size,)) for size in sizes]
        for thread in threads:
            thread.start()
        for index in range(total):
            value = b"%06d" % index + b"." * 5000
            produce(wire, name, batch([value], timestamp=now_ms()))
        for thread in threads:
            thread.join(120)
        assert not failures, failures
        assert set(overtaken) == {1024}
        processes.wait_until(lambda: requests.start_offset(wire, name) > total / 2, 30, "retention")
