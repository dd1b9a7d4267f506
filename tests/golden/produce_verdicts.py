"""Ask a real Apache Kafka what becomes of every batch in produce_cases, and write it down.

    python -m tests.golden.produce_verdicts [HOST:PORT]

Without an address it starts a broker of its own (jars as in tests/support/apache.py). Everything
in produce_verdicts.json was made this way by Apache Kafka 4.4.0. For an accepted batch the file
also has what was stored: header fields, and each record's offset and timestamp, with times as
distances to the `now` that the case was made from (appended times, which no case knows, as null).
"""

import json
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from tests.golden.produce_cases import CASES, TOPICS, Case
from tests.support import processes, record_batches
from tests.support.apache import ApacheKafka
from tests.support.wire import ConnectionClosed, Struct, Wire

VERDICTS = Path(__file__).with_name("produce_verdicts.json")


def create_topics(wire: Wire) -> dict[str, str]:
    """One topic for each configuration, under a name that nobody else has."""
    names = {kind: f"{kind}-{uuid.uuid4().hex[:8]}" for kind in TOPICS}
    answer = wire.request(
        "create_topics",
        5,
        topics=[
            {
                "name": names[kind],
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for kind, configs in TOPICS.items()
        ],
        timeout=30_000,
        validate_only=False,
    )
    assert all(topic.error_code == 0 for topic in answer.topics), answer
    processes.wait_until(lambda: has_leaders(wire, names), 30, "leaders of the new topics")
    return names


def has_leaders(wire: Wire, names: dict[str, str]) -> bool:
    now = time.time_ns() // 1_000_000
    return all(produce(wire, name, CASES[0], now).error_code == 0 for name in names.values())


def ask(wire: Wire, topic: str, case: Case) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    partition = produce(wire, topic, case, now)
    if partition.error_code != 0:
        errors = getattr(partition, "record_errors", None) or []
        return {
            "error_code": partition.error_code,
            "error_message": without_times(getattr(partition, "error_message", None), topic, now),
            "record_errors": [
                [error.batch_index, without_times(error.batch_index_error_message, topic, now)]
                for error in errors
            ],
        }
    return {"error_code": 0, "stored": stored(wire, topic, partition.base_offset, now)}


def produce(wire: Wire, topic: str, case: Case, now: int) -> Struct:
    answer = wire.request(
        "produce",
        case.version,
        transactional_id=None,
        acks=-1,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": case.make(now)}]}],
    )
    (partition,) = answer.responses[0].partition_responses
    assert isinstance(partition, Struct)
    return partition


def without_times(message: str | None, topic: str, now: int) -> str | None:
    """The message as it would be in every run."""
    if message is None:
        return None
    for name in (topic, f"{topic}-0"):
        message = message.replace(f"{name}", "TOPIC")
    return message.replace(str(now)[:6], "NOW")


def stored(wire: Wire, topic: str, offset: int, now: int) -> dict[str, Any]:
    answer = wire.request(
        "fetch",
        11,
        replica_id=-1,
        max_wait=5_000,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 24,
                    }
                ],
            }
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    (partition,) = answer.responses[0].partitions
    batch = next(record_batches.batches(partition.records))
    assert batch.base_offset == offset, (batch.base_offset, offset)
    is_append_time = bool(batch.attributes & record_batches.LOG_APPEND_TIME)

    def since_now(timestamp: int) -> int | None:
        return None if is_append_time else (timestamp if timestamp < 1_000 else timestamp - now)

    try:
        records = [
            [record.offset - offset, since_now(record.timestamp)] for record in batch.records()
        ]
    except Exception as error:
        records = [f"unreadable: {type(error).__name__}"]
    return {
        "attributes": batch.attributes,
        "last_offset_delta": batch.last_offset_delta,
        "record_count": batch.record_count,
        "max_timestamp": since_now(batch.max_timestamp),
        "producer": [batch.producer_id, batch.producer_epoch, batch.base_sequence],
        "is_crc_right": batch.is_crc_right,
        "records": records if len(records) <= 10 else len(records),
    }


def capture(address: tuple[str, int]) -> dict[str, Any]:
    verdicts: dict[str, Any] = {}
    with Wire(address) as wire:
        names = create_topics(wire)
    for case in CASES:
        with Wire(address, timeout=10) as wire:
            try:
                verdicts[case.name] = ask(wire, names[case.topic], case)
            except (TimeoutError, ConnectionClosed) as error:
                verdicts[case.name] = {"unanswered": type(error).__name__}
    assert len(verdicts) == len(CASES), "names must be unique"
    return verdicts


def main(argv: list[str]) -> None:
    if argv:
        host, port = argv[0].rsplit(":", 1)
        verdicts = capture((host, int(port)))
    else:
        with (
            tempfile.TemporaryDirectory() as directory,
            ApacheKafka(Path(directory) / "kafka") as kafka,
        ):
            verdicts = capture(kafka.address)
    lines = [f"  {json.dumps(name)}: {json.dumps(verdict)}" for name, verdict in verdicts.items()]
    VERDICTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
