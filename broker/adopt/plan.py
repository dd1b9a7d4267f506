"""What an adoption will do, decided before anything is done.

A plan is written into the data directory and then carried out; an adoption that was interrupted
reads it back and goes on. It holds everything that the execution needs, so that the directories
are judged once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

#: Written into every plan; a plan of another number is not gone on with.
PLAN_VERSION: Final = 1


class Mode(Enum):
    """How the bytes get into the data directory."""

    #: Sealed segments by hard links, the rest copied; the source stays as it is.
    LINK = "link"
    COPY = "copy"
    #: Partition directories are renamed; no Kafka can start on the source any more.
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition directory. ``link`` and ``copy``: name in the data directory to name in the
    source; not used where the directory is moved as it is."""

    source: str
    name: str
    link: Mapping[str, str]
    copy: Mapping[str, str]
    #: Set when Kafka had not written it down yet.
    topic_id: str | None
    #: Bytes of ``copy``, and of all.
    copied_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic for the metadata store; one leader epoch for each partition."""

    name: str
    topic_id: str
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """What a person wants to know of it. ``held``: topics on which nothing is deleted, because
    their retention was not found. ``leftovers``: (directory, why it was left behind)."""

    sources: tuple[str, ...]
    mode: str
    cluster_id: str
    node_id: int
    was_clean: bool
    topic_count: int
    partition_count: int
    total_bytes: int
    next_producer_id: int
    metadata_end_offset: int
    features: Mapping[str, int]
    held: tuple[str, ...]
    #: Adopted although no metadata knew them.
    unlisted: tuple[str, ...]
    leftovers: tuple[tuple[str, str], ...]
    #: Kind of thing to how many of it exist in Kafka and were not taken over.
    not_taken: Mapping[str, int]
    settings_left: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    fingerprint: str
    mode: Mode
    sources: tuple[str, ...]
    cluster_id: str
    node_id: int
    meta_properties: str
    settings: Mapping[str, str]
    topics: tuple[TopicPlan, ...]
    default_broker_configs: Mapping[str, str]
    broker_configs: Mapping[str, str]
    next_producer_id: int
    features: Mapping[str, int]
    partitions: tuple[PartitionPlan, ...]
    #: Checkpoint file to its lines (topic, partition, offset).
    offsets: Mapping[str, tuple[tuple[str, int, int], ...]]
    #: Content of the clean-shutdown mark; None when a Kafka was not stopped cleanly.
    clean_mark: str | None
    report: Report
    is_staged: bool = False
    version: int = field(default=PLAN_VERSION)


def encode_plan(plan: Plan) -> bytes:
    return json.dumps(asdict(plan) | {"mode": plan.mode.value}, separators=(",", ":")).encode()


def decode_plan(data: bytes) -> Plan | None:
    """None for a plan that is not whole, or of another version."""
    try:
        value: dict[str, Any] = json.loads(data)
        if value["version"] != PLAN_VERSION:
            return None
        partitions = tuple(PartitionPlan(**part) for part in value["partitions"])
        topics = tuple(
            TopicPlan(**topic | {"leader_epochs": tuple(topic["leader_epochs"])})
            for topic in value["topics"]
        )
        offsets = {
            name: tuple((topic, index, offset) for topic, index, offset in lines)
            for name, lines in value["offsets"].items()
        }
        return Plan(
            **value
            | {
                "mode": Mode(value["mode"]),
                "sources": tuple(value["sources"]),
                "partitions": partitions,
                "topics": topics,
                "offsets": offsets,
                "report": decode_report(value["report"]),
            }
        )
    except (ValueError, KeyError, TypeError):
        return None


def encode_report(report: Report) -> bytes:
    return json.dumps(asdict(report), indent=2).encode() + b"\n"


def decode_report(value: Mapping[str, Any]) -> Report:
    lists = ("sources", "held", "unlisted", "settings_left", "notes")
    return Report(
        **{
            **value,
            **{name: tuple(value[name]) for name in lists},
            "leftovers": tuple((name, why) for name, why in value["leftovers"]),
        }
    )
