"""Lines about what a broker costs when nobody asks anything of it: memory, start, thousands of partitions."""

import mmap
import shutil
import time
from pathlib import Path

from tests.bench import brokers
from tests.bench.brokers import Broker
from tests.bench.line import Bench, Figure, Line, TopicLine, at_most, value_at_most
from tests.support import processes

SETTLE_SECONDS = 5
MEGABYTE = 1e6
TOUCH_LEAVES_KIB = 1 << 20


def touch_free_memory() -> None:
    """Write to most of the free memory once and give it back.

    A page that a virtual machine has never used costs its host ten times as much to bring in as one
    that is used again: the first broker to fill the page cache would pay for the second.
    """
    size = max(processes.available_memory_kib() // 4 * 3 - TOUCH_LEAVES_KIB, 0) * 1024
    if not size:
        return
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def private_memory_mb(broker: Broker) -> float:
    """Kafka: all that is resident. Odradek: anonymous and shared memory, for pages of mapped log segments are page
    cache, which the kernel takes back at will. (Kafka maps only its indexes.)"""
    fields = ("VmRSS",) if broker.name == brokers.Kafka.name else ("RssAnon", "RssShmem")
    return sum(processes.status_kib(broker.pid, name) for name in fields) * 1024 / MEGABYTE


def resident_mb(broker: Broker) -> float:
    return processes.status_kib(broker.pid, "VmRSS") * 1024 / MEGABYTE


class Start(Line):
    """An empty data directory (Kafka's is formatted before): from the creation of the process to a Metadata answer."""

    is_paired = False

    def __init__(self) -> None:
        figure = Figure("seconds", "", "s", at_most(1 / 10))
        super().__init__("start", "start to the first answer, empty", figure)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        try:
            return {"seconds": brokers.start(broker)}
        finally:
            broker.close()
            shutil.rmtree(broker.data, ignore_errors=True)


class IdleMemory(Line):
    """A broker that nobody has asked anything."""

    needs_fresh_broker = True
    has_load = False

    def __init__(self) -> None:
        figure = Figure("mb", "", "MB", at_most(1 / 6))
        super().__init__("memory-idle", "memory when idle", figure)

    def prepare(self, bench: Bench, broker: Broker) -> None:
        time.sleep(SETTLE_SECONDS * bench.scale.share)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        return {"mb": private_memory_mb(broker)}


class LoadedMemory(Line):
    """Right after the speed lines. Run alone, it puts a short share of them on the broker first."""

    has_load = False

    def __init__(self, core: list[TopicLine]) -> None:
        figure = Figure("mb", "", "MB", at_most(1 / 6))
        super().__init__("memory-loaded", "memory right after the lines above", figure)
        self.core = core

    def prepare(self, bench: Bench, broker: Broker) -> None:
        if broker.name in bench.loaded:
            return
        for line in self.core:
            line.prepare(bench, broker)
            line.run_for(bench, broker, bench.scale.seconds)
            line.finish(bench, broker)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        return {"mb": private_memory_mb(broker)}


def disk_mb(directory: Path) -> float:
    """Allocated blocks, as `du` counts them: a file with several names once."""
    blocks = {
        status.st_ino: status.st_blocks for f in directory.rglob("*") if (status := f.lstat())
    }
    return sum(blocks.values()) * 512 / MEGABYTE


class ManyPartitions(Line):
    """5,000 partitions of 20 records of 1 KB: start after `kill -9` (nothing was flushed), what the idle broker
    costs, start after a clean stop. A start ends with a stored record fetched from the last partition."""

    is_paired = False
    topic = "many"
    per_request = 50
    idle_seconds = 20

    def __init__(self) -> None:
        fifth = at_most(1 / 5)
        super().__init__(
            "many",
            "5,000 partitions, 100,000 records of 1 KB",
            Figure("killed", "start after kill -9", "s", fifth),
            Figure("clean", "start after a clean stop", "s", fifth),
            Figure("resident", "resident memory", "MB", fifth),
            Figure("idle", "idle CPU", "% of a core", fifth),
            Figure("disk", "disk", "MB", value_at_most(150)),
            Figure("descriptors", "descriptors", "", value_at_most(2_500)),
        )

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        partitions = bench.scale.count(100) * self.per_request
        try:
            brokers.start(broker)
            self._fill(bench, broker, partitions)
            return self._measure(bench, broker, partitions)
        finally:
            broker.close()
            shutil.rmtree(broker.data, ignore_errors=True)

    def _fill(self, bench: Bench, broker: Broker, partitions: int) -> None:
        bench.create_topic(broker, self.topic, partitions)
        batches = ("-recs", 20, "-size", 1000, "-depth", 1, "-rotate")
        requests = ("-per-request", self.per_request, "-reqs", partitions // self.per_request)
        topic = ("-topic", self.topic, "-parts", partitions)
        bench.generate(broker, "produce", *topic, *batches, *requests)

    def _measure(self, bench: Bench, broker: Broker, partitions: int) -> dict[str, float]:
        ready = brokers.serves_record(self.topic, partitions - 1)
        broker.kill9()
        killed = brokers.start(broker, ready)
        broker.stop()
        clean = brokers.start(broker, ready)
        time.sleep(SETTLE_SECONDS)
        cpu_before, seconds = processes.cpu_seconds(broker.pid), self.idle_seconds
        time.sleep(seconds)
        return {
            "killed": killed,
            "clean": clean,
            "resident": resident_mb(broker),
            "idle": (processes.cpu_seconds(broker.pid) - cpu_before) / seconds * 100,
            "disk": disk_mb(broker.data),
            "descriptors": processes.descriptor_count(broker.pid),
        }
