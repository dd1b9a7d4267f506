"""The helper for people's own programs: ranges by time, streams that are cut off and go on."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark_tasks.reading import read, read_result, read_stream, result_files
from tests.support.odradek import OdradekBroker
from tests.support.spark import SparkInThisProcess

BASE_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def produce(broker: OdradekBroker, topic: str, numbers: range, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if topic not in admin.list_topics(timeout=30).topics:
        config = {"retention.ms": "-1"}
        for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(
            topic, json.dumps({"n": number}), partition=number % partitions,
            timestamp=BASE_MS + number * 1000,
        )  # fmt: skip
    assert producer.flush(60) == 0


def test_a_range_of_times_is_read(shared_odradek: OdradekBroker, spark: SparkInThisProcess) -> None:
    produce(shared_odradek, "read-by-time", range(100))
    records = read(
        spark.session, "read-by-time", bootstrap=shared_odradek.bootstrap,
        since="2023-11-14T22:13:30", until="2023-11-14T22:13:40", schema="n long",
    )  # fmt: skip
    assert sorted(row.n for row in records.select("data.n").collect()) == list(range(10, 20))
    later = read(spark.session, "read-by-time", bootstrap=shared_odradek.bootstrap, since="-1h")
    assert later.count() == 0


def stream_once(
    spark: SparkInThisProcess, broker: OdradekBroker, topic: str, directory: Path, per_batch: int
) -> None:
    records = read_stream(
        spark.session, topic, bootstrap=broker.bootstrap, schema="n long",
        max_offsets_per_trigger=per_batch,
    )  # fmt: skip
    query = (
        records.select("partition", "offset", "data.n")
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_stream_cut_off_in_a_batch_has_each_record_once_for_every_reader(
    shared_odradek: OdradekBroker, spark: SparkInThisProcess, tmp_path: Path
) -> None:
    """What a kill between writing files and committing them leaves: the commit of the last batch is
    gone from checkpoint and list, its files are there. The same batch is then written again."""
    produce(shared_odradek, "cut-off", range(60))
    stream_once(spark, shared_odradek, "cut-off", tmp_path, 20)
    out = tmp_path / "out"
    last = max(
        int(path.name) for path in (out / "_spark_metadata").iterdir() if path.name.isdecimal()
    )
    for path in (out / "_spark_metadata" / str(last), tmp_path / "checkpoint/commits" / str(last)):
        path.unlink()
        path.with_name(f".{last}.crc").unlink(missing_ok=True)
    produce(shared_odradek, "cut-off", range(60, 75))
    stream_once(spark, shared_odradek, "cut-off", tmp_path, 20)

    everything = sorted(str(path) for path in out.glob("*.parquet"))
    assert len(result_files(out)) < len(everything), "nothing was left over: the test tests nothing"
    assert sorted(row.n for row in read_result(spark.session, out).collect()) == list(range(75))
    by_spark: list[Any] = spark.session.read.parquet(str(out)).collect()
    assert sorted(row.n for row in by_spark) == list(range(75))


@pytest.mark.slow
def test_small_partitions_get_their_turn_beside_a_large_one(
    shared_odradek: OdradekBroker, spark: SparkInThisProcess, tmp_path: Path
) -> None:
    """C171: 101, 11 and 1 records, ten offsets a batch."""
    topic = "uneven"
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": shared_odradek.bootstrap})
    for partition, count in enumerate((101, 11, 1)):
        for number in range(count):
            producer.produce(topic, json.dumps({"n": number}), partition=partition)
    assert producer.flush(60) == 0
    stream_once(spark, shared_odradek, topic, tmp_path, 40)
    rows = read_result(spark.session, tmp_path / "out").collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        (partition, offset)
        for partition, count in enumerate((101, 11, 1))
        for offset in range(count)
    ]


def test_records_that_retention_took_are_skipped_and_the_rest_comes_once(
    shared_odradek: OdradekBroker, spark: SparkInThisProcess, tmp_path: Path
) -> None:
    """C167, C170: the start moves past the checkpoint while the stream is stopped."""
    from confluent_kafka import TopicPartition

    produce(shared_odradek, "aged-out", range(20), partitions=1)
    stream_once(spark, shared_odradek, "aged-out", tmp_path, 10)
    produce(shared_odradek, "aged-out", range(20, 60), partitions=1)
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    for future in admin.delete_records([TopicPartition("aged-out", 0, 45)]).values():
        future.result()
    stream_once(spark, shared_odradek, "aged-out", tmp_path, 10)
    rows = read_result(spark.session, tmp_path / "out").collect()
    assert sorted(row.n for row in rows) == [*range(20), *range(45, 60)]


@pytest.mark.slow
def test_a_stream_over_restarts_of_the_broker_has_each_record_once(
    spark: SparkInThisProcess, tmp_path: Path
) -> None:
    """C166: the latest offset never goes back, whatever the broker does between two batches."""
    with OdradekBroker(tmp_path / "own") as broker:
        produce(broker, "restarted", range(100))
        query = (
            read_stream(spark.session, "restarted", bootstrap=broker.bootstrap, schema="n long")
            .select("partition", "offset", "data.n")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        try:
            for round_ in range(1, 4):
                broker.kill9() if round_ % 2 else broker.stop()
                broker.start()
                produce(broker, "restarted", range(round_ * 100, round_ * 100 + 100))
            query.processAllAvailable()
        finally:
            query.stop()
    rows = read_result(spark.session, tmp_path / "out").collect()
    assert sorted(row.n for row in rows) == list(range(400))


@pytest.mark.slow
def test_a_stream_that_must_not_lose_anything_says_what_is_gone(
    shared_odradek: OdradekBroker, spark: SparkInThisProcess, tmp_path: Path
) -> None:
    """C170 with failOnDataLoss, which a program may ask of Spark itself."""
    from confluent_kafka import TopicPartition

    produce(shared_odradek, "must-not-lose", range(20), partitions=1)
    stream_once(spark, shared_odradek, "must-not-lose", tmp_path, 100)
    produce(shared_odradek, "must-not-lose", range(20, 60), partitions=1)
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    for future in admin.delete_records([TopicPartition("must-not-lose", 0, 45)]).values():
        future.result()
    query = (
        spark.session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", shared_odradek.bootstrap)
        .option("subscribe", "must-not-lose")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .load()
        .selectExpr("partition", "offset", "CAST(NULL AS LONG) AS n")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="must-not-lose-0") as failure:
        query.awaitTermination(120)
    assert "20" in str(failure.value)
