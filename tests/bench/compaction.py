"""Compaction beside Apache Kafka's: ``python -m tests.bench.compaction [--records N] [--keys N]``.

The same records (random keys, 100-byte values, segments of 64 MiB) go to a topic of each broker while
compaction is held back; then it is let go, and the time until ``cleaner-offset-checkpoint`` names the
last sealed segment is taken. Of ours the child's anonymous memory is sampled on the way; the bar is
the table (``log.cleaner.dedupe.buffer.size``, 128 MiB), 16 MiB of marks and 64 MiB for the rest.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.support import processes
from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker
from tests.support.requests import alter_config, create_topic
from tests.support.wire import Wire

TOPIC: Final = "compacted"
BAR_MIB: Final = 128 + 16 + 64
#: Held back by the lag, which is lifted when everything is written.
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "86400000",
}
PROPERTIES: Final = {"log.cleaner.backoff.ms": "100"}


def fill(bootstrap: str, records: int, keys: int) -> None:
    rng = random.Random(1)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 400_000,
        }
    )
    value = b"v" * 100
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, key=b"key-%08d" % rng.randrange(keys), value=value)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 10_000:
            producer.poll(0)
    assert producer.flush(120) == 0


def checkpoint(logs: Path) -> int:
    path = logs / "cleaner-offset-checkpoint"
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(f"{TOPIC} 0 "):
            return int(line.rpartition(" ")[2])
    return 0


def child_mib(pid: int) -> float:
    """Anonymous memory of the cleaning child; 0 while there is none."""
    try:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"broker.storage.cleaning" in Path(f"/proc/{child}/cmdline").read_bytes():
                return processes.status_kib(int(child), "RssAnon") / 1024
    except OSError:
        pass  # it ended while we looked
    return 0.0


def run(broker: OdradekBroker | ApacheKafka, records: int, keys: int) -> tuple[float, float, int]:
    """Seconds, most MiB of the child, bytes left."""
    with broker, Wire(broker.address) as wire:
        create_topic(wire, TOPIC, configs=SETTINGS)
        fill(broker.bootstrap, records, keys)
        directory = broker.logs / f"{TOPIC}-0"
        target = max(int(path.stem) for path in directory.glob("*.log"))
        start = time.monotonic()
        alter_config(wire, TOPIC, "min.compaction.lag.ms", "0")
        most = 0.0
        while checkpoint(broker.logs) < target:
            most = max(most, child_mib(broker.pid))
            time.sleep(0.05)
        seconds = time.monotonic() - start
        left = sum(path.stat().st_size for path in directory.glob("*.log"))
        return seconds, most, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    for kind in (OdradekBroker, ApacheKafka):
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
            broker = kind(Path(directory), PROPERTIES)
            seconds, most, left = run(broker, options.records, options.keys)
        rate = options.records / seconds / 1000
        line = (
            f"{broker.name:8} {seconds:7.1f} s  {rate:6.0f} k records/s  {left / 1e6:6.0f} MB left"
        )
        if most:
            verdict = "holds" if most <= BAR_MIB else "MISSED"
            line += f"  child at most {most:.0f} MiB (bar {BAR_MIB}: {verdict})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
