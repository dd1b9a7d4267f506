"""Prints the cost of the hot codecs: ``python -m tests.broker.protocol.measure``.

These are the figures in the module docstrings of ``broker/protocol``; take them again on the same
machine before and after a change. The best of several rounds is told.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from timeit import Timer
from typing import Any

from broker.model.file_region import FileRegion
from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.codec import entity_codec
from broker.protocol.framing import FrameBuffer, ReceiveBudget, Scratch
from broker.protocol.hot import fetch, list_offsets, metadata, produce
from broker.protocol.request import parse_header

TOPIC_ID = uuid.UUID("0123456789abcdef0123456789abcdef")
TOPIC_NAME = "a-topic-of-some-length"


def best_ns(call: Callable[[], Any], rounds: int = 15) -> float:
    timer = Timer(call)
    number, _ = timer.autorange()
    number = max(1, number // 10)
    return min(timer.repeat(rounds, number)) / number * 1e9


def show(name: str, call: Callable[[], Any]) -> None:
    print(f"{name:58} {best_ns(call):12,.0f} ns")


def request_body(api_key: ApiKey, version: int, **values: Any) -> memoryview:
    message = schema.request_type(api_key, version)(**values)
    out = bytearray()
    entity_codec(type(message)).write(out, message)
    return memoryview(out)


def part(api_key: ApiKey, version: int, class_name: str, **values: Any) -> Any:
    module = schema._module(api_key, version, "request")
    return getattr(module, class_name)(**values)


def produce_body(version: int) -> memoryview:
    key = {"topic_id": TOPIC_ID} if version >= 13 else {"name": TOPIC_NAME}
    data = part(ApiKey.PRODUCE, version, "PartitionProduceData", index=0, records=b"x" * 180)
    topic = part(ApiKey.PRODUCE, version, "TopicProduceData", partition_data=(data,), **key)
    return request_body(
        ApiKey.PRODUCE, version, transactional_id=None, acks=-1, timeout=30000, topic_data=(topic,)
    )


def fetch_body(version: int, count: int) -> memoryview:
    key = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": TOPIC_NAME}
    more = {"last_fetched_epoch": -1} if version >= 12 else {}
    partitions = tuple(
        part(
            ApiKey.FETCH,
            version,
            "FetchPartition",
            partition=index,
            current_leader_epoch=1,
            fetch_offset=1000,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
            **more,
        )
        for index in range(count)
    )
    topic = part(ApiKey.FETCH, version, "FetchTopic", partitions=partitions, **key)
    replica = {} if version >= 15 else {"replica_id": -1}
    return request_body(
        ApiKey.FETCH,
        version,
        max_wait=500,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(topic,),
        forgotten_topics_data=(),
        rack_id="",
        **replica,
    )


def measure_produce() -> None:
    for version in (8, 13):
        body = produce_body(version)
        key: Any = TOPIC_ID if version >= 13 else TOPIC_NAME
        show(
            f"Produce v{version} 1 partition, decode",
            lambda version=version, body=body: produce.decode_request(version, body, 0),
        )
        topics = [(key, [(0, 0, 1000, -1, 0, None, None)])]
        show(
            f"Produce v{version} 1 partition, encode",
            lambda version=version, topics=topics: produce.encode_response(version, 7, topics),
        )


def measure_fetch() -> None:
    region = FileRegion(None, 0, 0, 1 << 20)  # type: ignore[arg-type]
    for version in (11, 17):
        key: Any = TOPIC_ID if version >= 13 else TOPIC_NAME
        for count in (1, 100):
            body = fetch_body(version, count)
            show(
                f"Fetch v{version} {count} partitions, decode",
                lambda version=version, body=body: fetch.decode_request(version, body, 0),
            )
            for label, records in (("empty", None), ("one region each", region)):
                results = [
                    fetch.FetchPartitionResult(index, 0, 1000, 1000, 0, None, -1, records)
                    for index in range(count)
                ]
                show(
                    f"Fetch v{version} {count} partitions, encode, {label}",
                    lambda version=version, key=key, results=results: fetch.encode_response(
                        version, 7, 0, 0, 0, [(key, results)]
                    ),
                )


def measure_list_offsets() -> None:
    results = [(index, 0, -1, 1000, 1) for index in range(100)]
    show(
        "ListOffsets v10 100 partitions, encode",
        lambda: list_offsets.encode_response(10, 7, 0, [(TOPIC_NAME, results)]),
    )


def measure_metadata() -> None:
    partitions = [metadata.MetadataPartition(index, 1, 5, (1,), (1,)) for index in range(5)]
    topics = [metadata.MetadataTopic(f"topic-{n}", TOPIC_ID, partitions) for n in range(1000)]
    fragments = [metadata.encode_topic_fragment(12, topic) for topic in topics]
    brokers = [(1, "127.0.0.1", 9092, None)]
    show(
        "Metadata v12 1,000 topics x 5, from cached fragments",
        lambda: metadata.encode_response(12, 7, 0, brokers, "cluster", 1, fragments),
    )
    show(
        "Metadata v12 fragment of 5 partitions",
        lambda: metadata.encode_topic_fragment(12, topics[0]),
    )


def measure_framing() -> None:
    scratch = Scratch()
    frames = FrameBuffer(scratch, ReceiveBudget(1 << 30), 1 << 27)
    wire = (b"\0\0\1\0" + b"x" * 256) * 5

    def five_small_frames() -> None:
        target = frames.writable()
        target[: len(wire)] = wire
        frames.received(len(wire))

    show("five frames of 256 bytes, received at once", five_small_frames)
    header = memoryview(b"\0\0\0\x08\0\0\0\7\0\x0bsome-clientbody")
    show("request header v1", lambda: parse_header(header))
    flexible = memoryview(b"\0\0\0\x0d\0\0\0\7\0\x0bsome-client\0body")
    show("request header v2", lambda: parse_header(flexible))


def measure_schema() -> None:
    types = schema.response_types(ApiKey.DESCRIBE_CONFIGS, 4)

    def entry() -> Any:
        return types.DescribeConfigsResourceResult(
            name="segment.bytes",
            value="1073741824",
            read_only=False,
            config_source=5,
            is_sensitive=False,
            synonyms=[
                types.DescribeConfigsSynonym(name="log.segment.bytes", value="1073741824", source=5)
            ],
            config_type=5,
            documentation=None,
        )

    result = types.DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=2,
        resource_name="t",
        configs=[entry() for _ in range(40)],
    )
    response = types.DescribeConfigsResponse(throttle_time=0, results=[result])
    show("DescribeConfigs v4: build one entry with a synonym", entry)
    show(
        "DescribeConfigs v4: encode 40 entries",
        lambda: schema.encode_response(ApiKey.DESCRIBE_CONFIGS, 4, 7, response),
    )


def main() -> None:
    measure_framing()
    measure_produce()
    measure_fetch()
    measure_list_offsets()
    measure_metadata()
    measure_schema()


if __name__ == "__main__":
    main()
