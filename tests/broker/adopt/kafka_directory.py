"""Kafka's log directories made by hand, small and fast; the conformance test has real ones."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from pathlib import Path

from broker.model.ids import TopicPartition
from broker.records.builder import build_batch
from broker.records.record import Record
from broker.storage.checkpoints import (
    encode_clean_shutdown,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_topic_id,
)

CLUSTER_ID = "w4kFGBT0QDicS1Q5o6tKuA"
TIMESTAMP = 1_700_000_000_000


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: str | None) -> bytes:
    return b"\0" if value is None else uvarint(len(value.encode()) + 1) + value.encode()


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def int32s(values: Sequence[int]) -> bytes:
    return uvarint(len(values) + 1) + b"".join(map(int32, values))


def frame(api_key: int, version: int, body: bytes) -> bytes:
    return bytes((1, api_key, version)) + body


BEGIN, END, ABORT = frame(23, 0, b"\0"), frame(24, 0, b"\0"), frame(25, 0, b"\0")


def topic_record(name: str, topic_id: uuid.UUID) -> bytes:
    return frame(2, 0, text(name) + topic_id.bytes + b"\0")


def partition_record(
    topic_id: uuid.UUID,
    index: int,
    *,
    replicas: Sequence[int] = (1,),
    isr: Sequence[int] = (1,),
    leader: int = 1,
    leader_epoch: int = 0,
    directories: Sequence[uuid.UUID] = (),
) -> bytes:
    body = int32(index) + topic_id.bytes + int32s(replicas) + int32s(isr) + b"\x01\x01"
    body += int32(leader) + int32(leader_epoch) + int32(0)
    body += uvarint(len(directories) + 1) + b"".join(each.bytes for each in directories)
    return frame(3, 1, body + b"\0")


def leader_record(topic_id: uuid.UUID, index: int, leader: int) -> bytes:
    return frame(5, 0, int32(index) + topic_id.bytes + b"\x01\x01\x04" + int32(leader))


def remove_record(topic_id: uuid.UUID) -> bytes:
    return frame(9, 0, topic_id.bytes + b"\0")


def config_record(kind: int, resource: str, name: str, value: str | None) -> bytes:
    return frame(4, 0, bytes((kind,)) + text(resource) + text(name) + text(value) + b"\0")


def producer_ids_record(next_producer_id: int) -> bytes:
    body = int32(1) + (5).to_bytes(8, "big") + next_producer_id.to_bytes(8, "big")
    return frame(15, 0, body + b"\0")


def feature_record(name: str, level: int) -> bytes:
    return frame(12, 0, text(name) + level.to_bytes(2, "big") + b"\0")


def metadata_batch(payloads: Sequence[bytes], base_offset: int, leader_epoch: int = 1) -> bytes:
    records = [
        Record(base_offset + index, TIMESTAMP, None, payload)
        for index, payload in enumerate(payloads)
    ]
    return bytes(build_batch(records, leader_epoch=leader_epoch))


def control_batch(kind: int, value: bytes, base_offset: int) -> bytes:
    record = Record(base_offset, TIMESTAMP, struct.pack(">hh", 0, kind), value)
    return bytes(build_batch([record], leader_epoch=1, is_control=True))


def leader_change(base_offset: int, voters: int = 1) -> bytes:
    ids = b"".join(int32(index) + b"\0" for index in range(1, voters + 1))
    value = struct.pack(">hi", 0, 1) + uvarint(voters + 1) + ids + uvarint(1) + b"\0"
    return control_batch(2, value, base_offset)


def checkpoint(payloads: Sequence[bytes]) -> bytes:
    head = control_batch(3, struct.pack(">hq", 0, TIMESTAMP) + b"\0", 0)
    body = metadata_batch(payloads, 1) if payloads else b""
    return head + body + control_batch(4, struct.pack(">h", 0) + b"\0", 1 + len(payloads))


def batch(base_offset: int, count: int = 3, *, size: int = 100, leader_epoch: int = 0) -> bytes:
    records = [
        Record(base_offset + index, TIMESTAMP + base_offset + index, b"key", b"v" * size)
        for index in range(count)
    ]
    return bytes(build_batch(records, leader_epoch=leader_epoch))


class KafkaDirectory:
    """One log directory. What is asked for is written at once; nothing is synced."""

    def __init__(
        self, path: Path, *, node_id: int = 1, cluster_id: str = CLUSTER_ID, is_clean: bool = True
    ) -> None:
        self.path = path
        self.node_id = node_id
        self.directory_id = uuid.uuid4()
        self._recovery_points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        path.mkdir(parents=True)
        (path / ".lock").touch()
        (path / "meta.properties").write_text(
            f"#\n#made by hand\nnode.id={node_id}\ndirectory.id={encode_topic_id(self.directory_id)}\n"
            f"version=1\ncluster.id={cluster_id}\n"
        )
        if is_clean:
            (path / ".kafka_cleanshutdown").write_bytes(encode_clean_shutdown(7))
        self._write_checkpoints()

    def metadata(self, payloads: Sequence[bytes]) -> None:
        """A metadata log without a checkpoint."""
        directory = self.path / "__cluster_metadata-0"
        directory.mkdir()
        data = leader_change(0)
        data += metadata_batch(payloads, 1) if payloads else b""
        (directory / f"{0:020d}.log").write_bytes(data)

    def partition(
        self,
        topic: str,
        index: int = 0,
        topic_id: uuid.UUID | None = None,
        *,
        segments: Sequence[Sequence[bytes]] = ((),),
        bases: Sequence[int] = (0,),
        recovery_point: int | None = None,
        log_start: int | None = None,
        epochs: Sequence[tuple[int, int]] = ((0, 0),),
    ) -> Path:
        """Segments of batches; indexes as Kafka leaves empty ones after a clean stop."""
        path = self.path / f"{topic}-{index}"
        path.mkdir()
        for base, batches in zip(bases, segments, strict=True):
            (path / f"{base:020d}.log").write_bytes(b"".join(batches))
            for suffix in ("index", "timeindex"):
                (path / f"{base:020d}.{suffix}").touch()
        (path / "leader-epoch-checkpoint").write_bytes(encode_epochs(epochs))
        if topic_id is not None:
            (path / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
        name = TopicPartition(topic, index)
        if recovery_point is not None:
            self._recovery_points[name] = recovery_point
        if log_start is not None:
            self._starts[name] = log_start
        self._write_checkpoints()
        return path

    def _write_checkpoints(self) -> None:
        for name, offsets in (
            ("recovery-point-offset-checkpoint", self._recovery_points),
            ("log-start-offset-checkpoint", self._starts),
            ("replication-offset-checkpoint", {}),
        ):
            (self.path / name).write_bytes(encode_offsets(offsets.items()))
