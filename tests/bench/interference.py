"""What a consumer of cold data costs the others: tiny produce requests beside a reader whose pages are on the disk.

"Larger than memory" is brought about by dropping the topic's pages from the page cache again and again
(posix_fadvise), which needs no privilege; both brokers are treated alike.
"""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from tests.bench import generator
from tests.bench.brokers import Broker
from tests.bench.line import Bench, Figure, Line, value_at_most

COLD, HOT = "cold-read", "cold-beside"
SEGMENT_BYTES = 64 << 20
DROP_EVERY_SECONDS = 0.05
OFFERED_RATE = 500
RECORDS = ("-recs", 16, "-size", 1000)
BATCHES = 125_000  # 2 GB
HEAD_START_SECONDS = 1


class PageDropper:
    """Keeps the files of one partition out of the page cache while it is entered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PageDropper":
        self.write_back()
        self.drop()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def write_back(self) -> None:
        """Dirty pages cannot be dropped."""
        for path in self._logs():
            with self._open(path) as descriptor:
                os.fdatasync(descriptor)

    def drop(self) -> None:
        for path in self._logs():
            with contextlib.suppress(FileNotFoundError), self._open(path) as descriptor:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def _run(self) -> None:
        while not self._ended.wait(DROP_EVERY_SECONDS):
            self.drop()

    def _logs(self) -> list[Path]:
        return sorted(self._directory.glob("*.log"))

    @staticmethod
    @contextlib.contextmanager
    def _open(path: Path) -> Any:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def disk_reads(broker: Broker) -> int:
    """Bytes that the process has caused to be read from storage: shows that cold was cold."""
    for line in Path(f"/proc/{broker.pid}/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise KeyError("read_bytes")


class ColdReader(Line):
    """p99 of tiny produce requests without and with the reader, and the factor between them."""

    def __init__(self) -> None:
        super().__init__(
            "cold",
            f"a consumer reads cold data beside {OFFERED_RATE} tiny req/s",
            Figure("alone", "p99 without the consumer", "ms"),
            Figure("beside", "p99 with the consumer", "ms"),
            Figure("factor", "p99 with / without", "", value_at_most(2)),
            Figure("reader", "the consumer reads", "MB/s"),
            Figure("cold", "of which from the disk", "%"),
        )

    def prepare(self, bench: Bench, broker: Broker) -> None:
        bench.create_topic(broker, COLD, segment_bytes=SEGMENT_BYTES)
        bench.create_topic(broker, HOT)
        batches = bench.scale.count(BATCHES)
        bench.generate(broker, "produce", "-topic", COLD, *RECORDS, "-reqs", batches)
        # What is cold was written long ago: neither measurement is one of its way to the disk.
        PageDropper(self._directory(broker)).write_back()

    @staticmethod
    def _directory(broker: Broker) -> Path:
        (directory,) = broker.data.rglob(f"{COLD}-0")
        return directory

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        seconds = bench.scale.seconds * 2
        alone = self._tiny_p99(bench, broker, seconds)
        read_before = disk_reads(broker)
        with PageDropper(self._directory(broker)):
            time = ("-seconds", seconds + HEAD_START_SECONDS + bench.scale.warmup_seconds)
            reader = generator.start(broker.address, "fetch", "-topic", COLD, *time)
            beside = self._tiny_p99(bench, broker, seconds)
            read = reader.result()
        return {
            "alone": alone,
            "beside": beside,
            "factor": beside / alone,
            "reader": read["mb_per_s"],
            "cold": (disk_reads(broker) - read_before) / max(1, read["bytes"]) * 100,
        }

    def _tiny_p99(self, bench: Bench, broker: Broker, seconds: float) -> float:
        time = ("-seconds", seconds, "-warmup", bench.scale.warmup_seconds)
        load = ("-topic", HOT, "-recs", 1, "-rate", OFFERED_RATE)
        result = bench.generate(broker, "produce", *load, *time)
        return float(result["latency_ms"]["p99"])

    def finish(self, bench: Bench, broker: Broker) -> None:
        bench.delete_topic(broker, COLD)
        bench.delete_topic(broker, HOT)
