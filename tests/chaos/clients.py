"""How the clients of a chaos run are made. What they say of lost connections goes to a log, not between the lines."""

from __future__ import annotations

import logging
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.chaos.checker import Place

LOG: Final = logging.getLogger("clients")

#: Of librdkafka: an offset that is out of range, and what would not end by itself.
FATAL: Final = frozenset({-140, -150, 1})


def connecting(bootstrap: str, **settings: Any) -> dict[str, Any]:
    # librdkafka lets go of a cluster of which nobody answers, and may wait on that for ever.
    keeping = {"metadata.recovery.strategy": "none"}
    return {"bootstrap.servers": bootstrap, "logger": LOG, **keeping, **settings}


def assigned(bootstrap: str, topic: str, partitions: int, **settings: Any) -> Consumer:
    """A reader of all partitions from their start, in no group."""
    # Offsets never end in a log that loses nothing: were one out of range, it would show.
    alone = {"group.id": "nobody", "auto.offset.reset": "error", "fetch.wait.max.ms": 50}
    consumer = Consumer(connecting(bootstrap, **alone, **settings))
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
    return consumer


def ends_of(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    """As the leaders tell now."""
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        for partition in range(partitions)
    }


def read(message: Any) -> tuple[Place, str]:
    return Place(message.partition(), message.offset()), message.value().decode()
