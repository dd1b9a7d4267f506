"""What lies in the log directory: Apache's dump-log tool reads all of it, at every stage."""

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import dump_log, foreign, processes, requests
from tests.support import record_batches as rb
from tests.support.fixtures import Broker
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import Record, batch
from tests.support.requests import create_topic, end_offset, list_offset, now_ms, produce, read_all
from tests.support.wire import Wire

STORAGE_ERROR = 56


def write_all_kinds(wire: Wire, topic: str, *, turns: int = 8) -> int:
    """Batches of every codec, with and without a producer, some empty, some large. The count."""
    producer_id, epoch = requests.init_producer(wire)
    count = sequence = 0
    for turn in range(turns):
        for codec in range(5):
            records = [
                Record(b"k%d" % i, os.urandom(8000), now_ms() + i, (("h", b"%d" % turn),))
                for i in range(5)
            ]
            records.append(Record(None, None, now_ms()))
            if turn % 2:
                produce(wire, topic, batch(records, codec=codec))
            else:
                data = batch(
                    records,
                    codec=codec,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
                produce(wire, topic, data)
                sequence += len(records)
            count += len(records)
    return count


def small_topic(wire: Wire, **configs: str) -> str:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return create_topic(wire, configs={"segment.bytes": "1048576", **given})


def directory_of(broker: Broker, topic: str, partition: int = 0) -> Path:
    return broker.logs / f"{topic}-{partition}"


def offsets_in(dumps: dict[Path, dump_log.Dump]) -> list[int]:
    return sorted(offset for one in dumps.values() for offset in one.offsets)


def test_after_a_clean_stop_everything_is_readable(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = small_topic(wire)
        count = write_all_kinds(wire, name)
    own_broker.stop()
    found = dump_log.check(directory_of(own_broker, name))
    assert len(found) > 1
    assert offsets_in(found) == list(range(count))
    # Indexes of sealed segments are worth looking at: an entry about every 4 KiB of batches.
    for path in sorted(found)[:-1]:
        assert path.with_suffix(".index").stat().st_size >= 8 * 10
        assert path.with_suffix(".timeindex").stat().st_size >= 12 * 10


def test_after_recovery_everything_is_readable(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = small_topic(wire)
        count = write_all_kinds(wire, name)
    own_broker.kill9()
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        assert end_offset(wire, name) == count
        more = write_all_kinds(wire, name, turns=2)
    own_broker.stop()
    found = dump_log.check(directory_of(own_broker, name))
    assert offsets_in(found) == list(range(count + more))


def test_sealed_segments_are_readable_while_the_broker_works(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = small_topic(wire)
        write_all_kinds(wire, name)
        directory = directory_of(own_broker, name)
        logs = sorted(directory.glob("*.log"))
        sealed = [log for log in logs if log != logs[-1]]
        files = [log.with_suffix(suffix) for log in sealed for suffix in (".log", ".index")]
        if own_broker.name == "odradek":
            files += [log.with_suffix(".timeindex") for log in sealed]
        found = dump_log.check(directory, files=files)
        assert len(found) == len(sealed) > 0


def test_an_active_segment_is_readable_once_it_is_trimmed(odradek_broker: OdradekBroker) -> None:
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        count = 0
        for _ in range(3):
            # More than 1 MiB in 10 s makes a partition hot: its tail is grown ahead.
            count += write_all_kinds(wire, name)
            odradek_broker.trim()
            found = dump_log.check(directory_of(odradek_broker, name))
            assert offsets_in(found) == list(range(count))
        assert len(read_all(wire, name)) == count


def test_a_large_offset_shows_in_names_and_checkpoints(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = small_topic(wire, file_delete_delay_ms="0")
        count = write_all_kinds(wire, name)
        assert requests.delete_records(wire, name, -1).low_watermark == count
        more = write_all_kinds(wire, name, turns=1)
    own_broker.stop()
    found = dump_log.check(directory_of(own_broker, name))
    assert max(offsets_in(found)) == count + more - 1
    checkpoint = (own_broker.logs / "log-start-offset-checkpoint").read_text().splitlines()
    assert checkpoint[0] == "0"
    assert f"{name} 0 {count}" in checkpoint
    recovery = (own_broker.logs / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert f"{name} 0 {count + more}" in recovery
    replication = (own_broker.logs / "replication-offset-checkpoint").read_text().splitlines()
    assert f"{name} 0 {count + more}" in replication


def test_the_files_of_a_directory_are_kafkas(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire)
        requests.produce_values(wire, name, [b"v"])
        known = requests.topic_id(wire, name)
    own_broker.stop()
    names = {path.name for path in own_broker.logs.iterdir() if path.is_file()}
    assert {
        "meta.properties",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    } <= names
    properties = (own_broker.logs / "meta.properties").read_text()
    assert "version=1" in properties
    assert "cluster.id=" in properties
    assert "node.id=1" in properties
    assert "directory.id=" in properties
    partition = {path.name for path in directory_of(own_broker, name).iterdir()}
    assert {
        f"{0:020}.log",
        f"{0:020}.index",
        f"{0:020}.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    } <= partition
    text = (directory_of(own_broker, name) / "partition.metadata").read_text()
    assert text.splitlines()[0] == "version: 0"
    encoded = base64.urlsafe_b64encode(known.bytes).decode().rstrip("=")
    assert text.splitlines()[1] == f"topic_id: {encoded}"


def test_segments_roll_by_time(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire, configs={"segment.ms": "300"})
        requests.produce_values(wire, name, [b"a"])
        time.sleep(0.5)
        requests.produce_values(wire, name, [b"b"])
        assert len(list(directory_of(own_broker, name).glob("*.log"))) == 2
        assert [record.value for record in read_all(wire, name)] == [b"a", b"b"]


def test_segments_roll_when_an_index_is_full(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(
            wire, configs={"segment.index.bytes": "80", "index.interval.bytes": "100"}
        )
        for index in range(60):
            requests.produce(wire, name, batch([b"x" * 200], timestamp=now_ms() + index))
        segments = list(directory_of(own_broker, name).glob("*.log"))
        assert 6 <= len(segments) <= 12
        assert len(read_all(wire, name)) == 60
    own_broker.stop()
    dump_log.check(directory_of(own_broker, name))


# ---------------------------------------------------------------------------------- recovery


@pytest.mark.parametrize("tail", ["garbage", "half a batch", "zeros", "bad checksum"])
def test_a_torn_tail_is_cut(own_broker: Broker, tail: str) -> None:
    with Wire(own_broker.address) as wire:
        name = small_topic(wire)
        count = write_all_kinds(wire, name)
        end = end_offset(wire, name)
    own_broker.kill9()
    last = max(directory_of(own_broker, name).glob("*.log"))
    extra = {
        "garbage": os.urandom(3000),
        "half a batch": batch([b"x" * 2000], timestamp=now_ms(), base_offset=end)[:1000],
        "zeros": b"\0" * 100_000,
        "bad checksum": batch([b"x" * 2000], timestamp=now_ms(), base_offset=end, crc=1),
    }[tail]
    valid = sum(one_size(found) for found in whole_batches(last))
    with last.open("r+b") as file:
        file.truncate(valid)
        file.seek(valid)
        file.write(extra)
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        assert end_offset(wire, name) == count
        assert [record.offset for record in read_all(wire, name)] == list(range(count))
        more = write_all_kinds(wire, name, turns=1)
    own_broker.stop()
    found = dump_log.check(directory_of(own_broker, name))
    assert offsets_in(found) == list(range(count + more))


def whole_batches(path: Path) -> list[rb.Batch]:
    return [one for one in rb.batches(path.read_bytes()) if one.is_crc_right and one.magic == 2]


def one_size(found: rb.Batch) -> int:
    return rb.HEADER_SIZE + len(found.payload)


@pytest.mark.parametrize("way", ["stop", "kill9"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbage"])
def test_damaged_indexes_are_made_anew(own_broker: Broker, way: str, damage: str) -> None:
    if own_broker.name == "apache" and (way, damage) != ("kill9", "missing"):
        pytest.skip("Apache Kafka trusts the indexes of a clean stop, as far as its sanity goes")
    with Wire(own_broker.address) as wire:
        name = small_topic(wire)
        count = write_all_kinds(wire, name)
        by_time = [
            (t, list_offset(wire, name, t).offset) for t in range(now_ms() - 3000, now_ms(), 157)
        ]
    getattr(own_broker, way)()
    for index, path in enumerate(sorted(directory_of(own_broker, name).glob("*.*index"))):
        if damage == "missing":
            path.unlink()
        elif damage == "empty":
            os.truncate(path, 0)
        elif damage == "cut":
            os.truncate(path, path.stat().st_size // 2 + index % 3)
        else:
            path.write_bytes(os.urandom(path.stat().st_size or 100))
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        assert [record.offset for record in read_all(wire, name)] == list(range(count))
        assert [(t, list_offset(wire, name, t).offset) for t, _ in by_time] == by_time
        for log in directory_of(own_broker, name).glob("*.log"):
            assert log.with_suffix(".index").exists()
            assert log.with_suffix(".timeindex").exists()
    own_broker.stop()
    if (way, damage) != ("stop", "garbage"):
        # Entries of the right length are held against their batches when they are used; the file
        # of a cleanly stopped broker is not read as a whole.
        dump_log.check(directory_of(own_broker, name))


def test_an_empty_segment_gets_the_files_that_a_crash_kept_from_it(own_broker: Broker) -> None:
    # A kill between the creation of a new segment's log and that of its indexes.
    with Wire(own_broker.address) as wire:
        name = create_topic(wire)
        requests.produce_values(wire, name, [b"v"])
    own_broker.kill9()
    for path in directory_of(own_broker, name).glob("*.*index"):
        path.unlink()
    own_broker.start()
    with Wire(own_broker.address) as wire:
        requests.wait_for_leaders(wire, name, 1)
        for suffix in (".index", ".timeindex"):
            assert (directory_of(own_broker, name) / f"{0:020}{suffix}").exists()
        assert [record.value for record in read_all(wire, name)] == [b"v"]


@pytest.mark.parametrize("way", ["stop", "kill9"])
def test_idle_partitions_are_no_reason_to_recover(
    start_odradek: Callable[..., OdradekBroker], way: str
) -> None:
    # C023
    broker = start_odradek({"log.retention.check.interval.ms": "200"})
    with Wire(broker.address) as wire:
        name = create_topic(wire, partitions=50, configs={"file.delete.delay.ms": "0"})
        expected = {}
        for index in range(20, 40):
            requests.produce_values(wire, name, [b"one"], partition=index)
        for index in range(40, 50):
            for _ in range(9):
                requests.produce_values(wire, name, [b"x"] * 455, partition=index)
            requests.produce_values(wire, name, [b"last"], partition=index)
            requests.delete_records(wire, name, 4095, partition=index)
        for index in range(50):
            expected[index] = (
                requests.start_offset(wire, name, partition=index),
                end_offset(wire, name, partition=index),
            )
    getattr(broker, way)()
    written = len(broker.log_text())
    broker.start()
    with Wire(broker.address) as wire:
        for index in range(50):
            assert (
                requests.start_offset(wire, name, partition=index),
                end_offset(wire, name, partition=index),
            ) == expected[index]
    said = broker.log_text()[written:].lower()
    assert "corrupt" not in said
    broker.stop()
    dump_log.check(broker.logs)


def test_a_flipped_bit_in_a_sealed_segment(odradek_broker: OdradekBroker) -> None:
    # C028: clients get the records before it, then an error; the broker serves on.
    name, other = flip_bit(odradek_broker)
    read_around_the_damage(odradek_broker, name, other)


@pytest.mark.parametrize("name", ["franz-go", "sarama"])
def test_clients_of_other_languages_say_that_a_batch_is_damaged(
    odradek_broker: OdradekBroker, name: str
) -> None:
    # C028
    topic, _ = flip_bit(odradek_broker)
    client = foreign.ForeignClient(name)
    with pytest.raises(AssertionError, match=r"(?i)crc"):
        client.read(odradek_broker.bootstrap, topic, 300)
    after = client.read(odradek_broker.bootstrap, topic, 149, start=151)
    assert [message.offset for message in after] == list(range(151, 300))


def flip_bit(broker: Broker) -> tuple[str, str]:
    """Three segments of 300 batches, and one bit of batch 150 turned."""
    with Wire(broker.address) as wire:
        name, other = small_topic(wire), create_topic(wire)
        for index in range(300):
            value = b"%03d" % index + b"." * 9000
            wire.send(
                "produce",
                9,
                **requests.produce_fields(name, 0, batch([value], timestamp=now_ms())),
            )
        for _ in range(300):
            wire.receive()
        requests.produce_values(wire, other, [b"healthy"])
    directory = directory_of(broker, name)
    damaged = max(path for path in directory.glob("*.log") if int(path.stem) <= 150)
    content = bytearray(damaged.read_bytes())
    position = 0
    for one in rb.batches(bytes(content)):
        if one.base_offset == 150:
            break
        position += one_size(one)
    with damaged.open("r+b") as file:
        file.seek(position + 2000)
        file.write(bytes([content[position + 2000] ^ 4]))
    return name, other


def read_around_the_damage(broker: Broker, name: str, other: str) -> None:
    from confluent_kafka import TopicPartition

    from tests.support.clients import ConfluentKafka

    with Wire(broker.address) as wire:
        assert [record.value for record in read_all(wire, other)] == [b"healthy"]
        part = requests.fetch(wire, name, 149, partition_max_bytes=30_000)
        found = list(rb.batches(part.records))
        assert [one.is_crc_right for one in found[:3]] == [True, False, True]
        # A look-up by time in damaged bytes, of a header that is sound, is answered.
        assert list_offset(wire, name, 0).error_code == 0
    consumer = ConfluentKafka().consumer(broker.bootstrap, **{"fetch.message.max.bytes": 30_000})
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        values, failure = [], None
        end = time.monotonic() + 30
        while failure is None and time.monotonic() < end:
            for message in consumer.consume(50, 0.2):
                if message.error() is not None:
                    failure = message.error()
                    break
                values.append(message.value()[:3])
        assert values == [b"%03d" % index for index in range(150)]
        assert failure is not None
        consumer.assign([TopicPartition(name, 0, 151)])
        values = []
        while len(values) < 149 and time.monotonic() < end:
            values += [m.value()[:3] for m in consumer.consume(149, 0.2) if m.error() is None]
        assert values == [b"%03d" % index for index in range(151, 300)]
    finally:
        consumer.close()


def test_a_bad_batch_before_the_last_segment_takes_only_its_partition_offline(
    odradek_broker: OdradekBroker,
) -> None:
    name, other = flip_bit(odradek_broker)
    odradek_broker.kill9()
    written = len(odradek_broker.log_text())
    odradek_broker.start()
    with Wire(odradek_broker.address) as wire:
        assert [record.value for record in read_all(wire, other)] == [b"healthy"]
        # If the segment was flushed before the crash it is not read again, and all is as before.
        part = requests.fetch(wire, name, 0)
        if part.error_code == 0:
            read_around_the_damage(odradek_broker, name, other)
            return
        assert part.error_code in (STORAGE_ERROR, 6, 5)
        data = batch([b"v"], timestamp=now_ms())
        assert requests.try_produce(wire, name, data).error_code in (STORAGE_ERROR, 6, 5)
    said = odradek_broker.log_text()[written:]
    assert name in said
    assert "150" in said
    # Nothing was cut silently.
    last = max(directory_of(odradek_broker, name).glob("*.log"))
    assert int(last.stem) > 150


# ---------------------------------------------------------------------------------- metadata


def test_what_was_answered_about_topics_survives_kill_9(odradek_broker: OdradekBroker) -> None:
    made, gone, changed = [], [], {}
    for turn in range(4):
        with Wire(odradek_broker.address) as wire:
            names = [create_topic(wire, partitions=turn + 1) for _ in range(5)]
            made += names[1:]
            requests.delete_topic(wire, names[0])
            gone.append(names[0])
            value = str(100_000 + turn)
            assert requests.alter_config(wire, names[1], "retention.ms", value).error_code == 0
            changed[names[1]] = value
        odradek_broker.kill9()
        odradek_broker.start()
        with Wire(odradek_broker.address) as wire:
            listed = {t.name: t for t in wire.request("metadata", 12, topics=None).topics}
            assert set(made) <= set(listed)
            assert set(gone).isdisjoint(listed)
            for name, value in changed.items():
                assert requests.topic_config(wire, name, "retention.ms").value == value
    leftovers = [p.name for p in odradek_broker.logs.iterdir() if p.name.startswith(tuple(gone))]
    assert all(name.endswith("-delete") for name in leftovers)


def test_a_deleted_topic_leaves_no_files_behind(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek({"log.segment.delete.delay.ms": "200"})
    with Wire(broker.address) as wire:
        name = create_topic(wire, partitions=3)
        requests.produce_values(wire, name, [b"v"])
        requests.delete_topic(wire, name)
        # Renamed before the answer, so that nothing can come back.
        assert not directory_of(broker, name).exists()
        processes.wait_until(
            lambda: not [p for p in broker.logs.iterdir() if name in p.name],
            30,
            "the files' end",
        )


def test_two_brokers_do_not_share_a_directory(
    odradek_broker: OdradekBroker, tmp_path: Path
) -> None:
    second = OdradekBroker(tmp_path / "second", data=odradek_broker.data)
    with pytest.raises(AssertionError, match="the broker ended"):
        second.start()
    second.close()
    assert "is in use by another broker" in second.log_text()
    with Wire(odradek_broker.address) as wire:
        assert wire.request("metadata", 9, topics=[]).brokers


@pytest.mark.parametrize("flush", [{}, {"flush.messages": "1"}, {"flush.ms": "50"}])
def test_acknowledged_records_survive_kill_9(
    odradek_broker: OdradekBroker, flush: dict[str, str]
) -> None:
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire, configs=flush)
    total = 0
    for turn in range(3):
        with Wire(odradek_broker.address) as wire:
            for index in range(50):
                data = batch([b"%d" % (total + index)], timestamp=now_ms())
                wire.send("produce", 9, **requests.produce_fields(name, 0, data, acks=-1))
            for index in range(50):
                found = wire.receive().responses[0].partition_responses[0]
                assert (found.error_code, found.base_offset) == (0, total + index)
            total += 50
        odradek_broker.kill9()
        odradek_broker.start()
        with Wire(odradek_broker.address) as wire:
            found = [record.value for record in read_all(wire, name)]
            assert found == [b"%d" % index for index in range(total)], turn


def test_a_flushed_topic_shows_only_what_is_on_disk(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        name = create_topic(wire, configs={"flush.messages": "1"})
        for turn in range(20):
            assert requests.produce_values(wire, name, [b"%d" % turn]) == turn
            part = requests.fetch(wire, name, turn)
            assert part.high_watermark == turn + 1


def test_retention_deletes_whole_segments_by_size_and_time(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek(
        {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "0"}
    )
    with Wire(broker.address) as wire:
        by_size = small_topic(wire, retention_bytes="2000000")
        by_time = small_topic(wire, retention_ms="3600000")
        old = now_ms() - 7_200_000
        for _ in range(8):
            requests.produce_values(wire, by_size, [b"x" * 600_000])
            requests.produce(wire, by_time, batch([b"x" * 600_000], timestamp=old))
        requests.produce_values(wire, by_time, [b"young"])
        processes.wait_until(
            lambda: requests.start_offset(wire, by_size) == 4, 30, "retention by size"
        )
        processes.wait_until(
            lambda: requests.start_offset(wire, by_time) >= 7, 30, "retention by time"
        )
        assert end_offset(wire, by_size) == 8
        assert read_all(wire, by_time, start=8)[0].value == b"young"
        processes.wait_until(
            lambda: len(list(directory_of(broker, by_size).glob("*.log"))) == 4,
            30,
            "the end of the files",
        )
    broker.stop()
    dump_log.check(broker.logs)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_thousand_partitions_take_little_disk_and_few_descriptors(
    odradek_broker: OdradekBroker,
) -> None:
    with Wire(odradek_broker.address, timeout=120) as wire:
        name = create_topic(wire, partitions=5000)
        data = batch([os.urandom(1000) for _ in range(20)], timestamp=now_ms())
        for start in range(0, 5000, 100):
            fields = requests.produce_fields(name, 0, data)
            fields["topic_data"][0]["partition_data"] = [
                {"index": index, "records": data} for index in range(start, start + 100)
            ]
            answer = wire.request("produce", 9, **fields)
            codes = {p.error_code for p in answer.responses[0].partition_responses}
            assert codes == {0}
        assert odradek_broker.descriptor_count() < 2500
    used = sum(
        path.stat().st_blocks * 512 for path in odradek_broker.data.rglob("*") if path.is_file()
    )
    assert used < 150_000_000, used
    odradek_broker.stop()
    odradek_broker.start()
    with Wire(odradek_broker.address, timeout=60) as wire:
        assert end_offset(wire, name, partition=4999) == 20
    odradek_broker.kill9()
    odradek_broker.start()
    with Wire(odradek_broker.address, timeout=60) as wire:
        assert end_offset(wire, name, partition=4999) == 20
