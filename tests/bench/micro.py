"""`python -m tests.bench.micro`: what one call of each hot function costs, without a network between.

Guards the numbers in the docstrings of the hot modules. The best of several repeats is shown, since a
busy machine only ever makes a call slower; functions that write into their input are given it to write.
"""

import argparse
import fnmatch
import shutil
import tempfile
import timeit
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from broker.clock import SystemClock
from broker.config.topic_config import DEFAULT_TOPIC_CONFIG
from broker.model.file_region import FileRegion
from broker.model.ids import TopicPartition
from broker.protocol.hot import fetch, metadata, produce
from broker.records.builder import build_batch
from broker.records.header import compute_crc, peek_header, stamp, walk_headers
from broker.records.produce_rules import ProduceRules
from broker.records.record import Record
from broker.records.validation import check_header, needs_walk, walk
from broker.storage.filesystem import RealFileSystem
from broker.storage.log_manager import LogManager
from tests.bench import generator
from tests.support import wire

Case = tuple[str, Callable[[], object]]

TOPIC_ID = uuid.UUID(int=7)
SHAPES = {"1 x 100 B": (1, 100), "100 x 100 B": (100, 100), "600 x 1,000 B": (600, 1000)}
REPEATS = 5
REPEAT_SECONDS = 0.03  # appends of 600 KB fill 100 MB in it


def make_batch(count: int, value_bytes: int) -> bytearray:
    now_ms = SystemClock().wall_ms()
    value = bytes(value_bytes)
    return build_batch([Record(offset, now_ms, None, value, ()) for offset in range(count)])


def record_cases() -> Iterator[Case]:
    """What a produced batch goes through."""
    now_ms = SystemClock().wall_ms()
    relaxed, strict = ProduceRules(), ProduceRules(strict=True)
    for shape, (count, size) in SHAPES.items():
        view = memoryview(make_batch(count, size))
        header = peek_header(view)
        yield f"records peek_header, {shape}", partial(peek_header, view)
        yield f"records compute_crc, {shape}", partial(compute_crc, view, 0, len(view))
        yield f"records check_header, {shape}", partial(check_header, view, relaxed, now_ms, 9)
        yield f"records needs_walk, {shape}", partial(needs_walk, header, relaxed, now_ms)
        yield f"records walk (strict), {shape}", partial(walk, view, header, strict, now_ms)
    yield "records stamp", partial(stamp, make_batch(1, 100), 0, 12345, 3)
    many = bytes(make_batch(10, 100)) * 64
    yield "records walk_headers, 64 batches", lambda: sum(1 for _ in walk_headers(many))


def request_frame(api: str, version: int, **fields: object) -> tuple[memoryview, int]:
    """A frame without its length, and where its body begins."""
    client_id = "bench"
    frame = bytearray(wire.encode_request(api, version, 1, client_id, **fields)[4:])
    body = 10 + len(client_id) + wire.is_flexible(api, version)
    return memoryview(frame), body


def produce_cases() -> Iterator[Case]:
    batch = bytes(make_batch(1, 100))
    for version in (8, 13):
        key: uuid.UUID | str = TOPIC_ID if version >= produce.TOPIC_ID_FROM else "topic"
        for count in (1, 50):
            data = [{"index": index, "records": batch} for index in range(count)]
            topic = {"name": "topic", "topic_id": TOPIC_ID, "partition_data": data}
            frame, body = request_frame(
                "produce",
                version,
                transactional_id=None,
                acks=1,
                timeout=30_000,
                topic_data=[topic],
            )
            decode = partial(produce.decode_request, version, frame, body)
            yield f"produce v{version} decode, {count} partition(s)", decode
            answers = [(index, 0, 5, -1, 0, None, None) for index in range(count)]
            encode = partial(produce.encode_response, version, 1, [(key, answers)])
            yield f"produce v{version} encode, {count} partition(s)", encode


class NoFile:
    """Stands for a segment: an encoder only looks at a region's length."""

    generation = 0

    def pin(self) -> int:
        raise AssertionError

    def unpin(self) -> None:
        raise AssertionError

    def peek(self, length: int, position: int) -> bytes | None:
        raise AssertionError

    def is_resident(self, position: int, length: int) -> bool:
        raise AssertionError

    def pull(self, position: int, length: int) -> None:
        raise AssertionError


def fetch_cases() -> Iterator[Case]:
    region = FileRegion(NoFile(), 0, 0, 1 << 20)
    for version in (11, 17):
        key: uuid.UUID | str = TOPIC_ID if version >= 13 else "topic"
        for count in (1, 50):
            wanted = [
                {"partition": i, "fetch_offset": 5, "partition_max_bytes": 1 << 20}
                for i in range(count)
            ]
            topic = {"topic": "topic", "topic_id": TOPIC_ID, "partitions": wanted}
            frame, body = request_frame(
                "fetch", version, replica_id=-1, max_wait=500, min_bytes=1, topics=[topic]
            )
            decode = partial(fetch.decode_request, version, frame, body)
            yield f"fetch v{version} decode, {count} partition(s)", decode
            results = [
                fetch.FetchPartitionResult(i, 0, 100, 100, 0, None, -1, region)
                for i in range(count)
            ]
            encode = partial(fetch.encode_response, version, 1, 0, 0, 0, [(key, results)])
            yield f"fetch v{version} encode, {count} partition(s)", encode


def metadata_cases() -> Iterator[Case]:
    partitions = [metadata.MetadataPartition(i, 1, 0, (1,), (1,)) for i in range(5_000)]
    topic = metadata.MetadataTopic("topic", TOPIC_ID, partitions)
    make_fragment = partial(metadata.encode_topic_fragment, 12, topic)
    yield "metadata v12 fragment, 5,000 partitions", make_fragment
    nodes, fragments = [(1, "127.0.0.1", 9092, None)], [make_fragment()]
    encode = partial(metadata.encode_response, 12, 1, 0, nodes, "cluster", 1, fragments)
    yield "metadata v12 encode, 5,000 partitions in a cached fragment", encode


def storage_cases(directory: Path) -> Iterator[Case]:
    """Appends and reads of a log in the page cache: plain (`pwrite`) and with a mapped tail."""
    clock = SystemClock()
    now_ms = clock.wall_ms()
    for how, mapped in (("pwrite", 0), ("map", 256)):
        path = directory / how
        path.mkdir()
        manager = LogManager(
            [str(path)],
            RealFileSystem(),
            clock,
            cluster_id="bench",
            node_id=1,
            max_mapped_tails=mapped,
        )
        manager.open(lambda topic_partition, topic_id: DEFAULT_TOPIC_CONFIG)
        for shape, (count, size) in SHAPES.items():
            topic_partition = TopicPartition(f"topic-{count}", 0)
            log = manager.get_or_create(topic_partition, TOPIC_ID, DEFAULT_TOPIC_CONFIG)
            batch = make_batch(count, size)
            header = peek_header(batch)
            append = partial(log.append_as_leader, memoryview(batch), header, 0, now_ms)
            yield f"storage append ({how}), {shape}", append
            middle, end = log.log_end_offset // 2, log.log_end_offset
            read = partial(log.read, middle, 1 << 20, end, True)
            yield f"storage read of 1 MiB ({how}), {shape}", read
        manager.close(clean=False)


def all_cases(directory: Path) -> Iterator[Case]:
    yield from record_cases()
    yield from produce_cases()
    yield from fetch_cases()
    yield from metadata_cases()
    yield from storage_cases(directory)


def microseconds(function: Callable[[], object]) -> float:
    timer = timeit.Timer(function)
    count = 1
    while (seconds := timer.timeit(count)) < REPEAT_SECONDS:
        count = max(2 * count, int(count * REPEAT_SECONDS / max(seconds, 1e-9)))
    return min(timer.repeat(REPEATS, count)) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.micro", description=__doc__)
    parser.add_argument("--only", default="*", help="a pattern, such as 'produce*'")
    options = parser.parse_args()
    generator.CACHE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="micro-", dir=generator.CACHE))
    try:
        for name, function in all_cases(directory):
            if fnmatch.fnmatch(name, options.only):
                print(f"{name:70} {microseconds(function):10.2f} us", flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
