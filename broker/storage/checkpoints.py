"""The small files: offset checkpoints, leader epochs, partition and directory metadata, clean mark.

All are text in Kafka's formats, replaced as a whole (``replace_file``), so a crash leaves the old
content or the new one. Reading never raises for damaged content: a checkpoint that makes no sense
counts as absent, because everything in it can be found again from the logs, only slower.
"""

from __future__ import annotations

import base64
import contextlib
import json
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from broker.model.ids import TopicId, TopicPartition

_VERSION = "0"


def encode_topic_id(topic_id: uuid.UUID) -> str:
    """Kafka's form of an id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_topic_id(text: str) -> uuid.UUID | None:
    with contextlib.suppress(ValueError):
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text.strip() + "=="))
    return None


def _encode_lines(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _parse_lines(data: bytes, columns: int) -> list[list[str]] | None:
    """The rows behind version and count; None when the file is not whole."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdigit():
        return None
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        return None
    return rows


def encode_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """``topic partition offset`` a line: recovery points, log starts, high watermarks."""
    return _encode_lines([f"{topic} {index} {offset}" for (topic, index), offset in offsets])


def parse_offsets(data: bytes) -> dict[TopicPartition, int] | None:
    rows = _parse_lines(data, 3)
    if rows is None:
        return None
    try:
        return {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in rows}
    except ValueError:
        return None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode_lines([f"{leader_epoch} {start}" for leader_epoch, start in entries])


def parse_epochs(data: bytes) -> list[tuple[int, int]] | None:
    rows = _parse_lines(data, 2)
    if rows is None:
        return None
    try:
        return [(int(leader_epoch), int(start)) for leader_epoch, start in rows]
    except ValueError:
        return None


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> TopicId | None:
    for line in data.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            return parse_topic_id(value)
    return None


class MetaProperties(NamedTuple):
    """``meta.properties`` version 1: whose directory this is."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = [
        "#",
        f"cluster.id={meta.cluster_id}",
        f"directory.id={encode_topic_id(meta.directory_id)}",
        f"node.id={meta.node_id}",
        "version=1",
        "",
    ]
    return "\n".join(lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties | None:
    """None when a property is missing; version 0 (``broker.id``, ZooKeeper days) is read, too."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip().replace("\\=", "=")
    try:
        node_id = int(found.get("node.id", found.get("broker.id", "")))
        directory_id = parse_topic_id(found.get("directory.id", "")) or uuid.UUID(int=0)
        return MetaProperties(found["cluster.id"], node_id, directory_id)
    except (KeyError, ValueError):
        return None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
