"""The copies here, as the broker of this data directory is asked about them over its control socket.

In a cluster it passes on what another broker leads. Whatever it cannot do at the moment is a ``NotNow``: somebody else may
lead the partition, or its replicas are behind; where the copy ends is then to be asked anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance import control
from broker.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class NotNow:
    reason: str


@dataclass(frozen=True, slots=True)
class Position:
    start_offset: int
    end_offset: int


class Here:
    """Raises CommandError where the broker is gone, or refuses for good."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def cluster_id(self) -> str:
        return str(control.ask(self._data, "stats")["cluster_id"])

    def positions(
        self, topic: str, source: str, partitions: Sequence[int] | None = None
    ) -> list[Position | NotNow]:
        """Of these partitions, or of all."""
        answer = control.ask(
            self._data,
            "import_positions",
            topic=topic,
            partitions=partitions,
            **{"from": source},
        )
        return [
            NotNow(told["not_now"])
            if "not_now" in told
            else Position(told["start_offset"], told["end_offset"])
            for told in answer["partitions"]
        ]

    def start(self, key: TopicPartition, source: str, offset: int) -> int | NotNow:
        """Nothing lies below ``offset`` any more; where the copy ends then."""
        return self._ask("import_start", key, source, offset=offset)

    def append(
        self, key: TopicPartition, source: str, path: Path, position: int, size: int, at: int
    ) -> int | NotNow:
        """A piece of a file, onto the copy that ends at ``at``; where it ends then."""
        return self._ask(
            "import_append", key, source, path=str(path), position=position, size=size, at=at
        )

    def _ask(
        self, command: str, key: TopicPartition, source: str, **arguments: Any
    ) -> int | NotNow:
        answer = control.ask(
            self._data,
            command,
            topic=key.topic,
            partition=key.partition,
            **{"from": source},
            **arguments,
        )
        return NotNow(answer["not_now"]) if "not_now" in answer else int(answer["end_offset"])
