"""What must hold for clients, whatever happens to brokers; told by what clients saw. The numbers are those of
the simulator's checker where it has them.

I1  a record acknowledged with acks=all is read where it was acknowledged, no record is read at two
    offsets, and each producer's are in its order
I2  no offset is read twice with different content
I3  the high watermark that a consumer is told never goes back
G1  a group never has a partition with two members at once
G2  a group, or who follows what is committed, reads every acknowledged record
T1  no record of an aborted transaction is read as committed
T2  nothing is read as committed but what was (T3, T4: see `transactions.py`)

Calls come from several threads.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

#: Failures that are kept; more of them say nothing new.
MAX_FAILURES = 50


class Place(NamedTuple):
    partition: int
    offset: int


def record_value(producer: str, number: int) -> str:
    return f"{producer}:{number}"


class Checker:
    """Failures are sentences; none at the end, and after `finish`, is the proof."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.acknowledged: dict[Place, str] = {}
        self._content: dict[Place, str] = {}
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._read_by_group: set[Place] = set()
        self._ownership_count = 0
        self._aborted: set[str] = set()
        self._values: set[str] = set()
        self._lock = threading.Lock()

    def _fail(self, what: str) -> None:
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(what)

    # While it runs -----------------------------------------------------------------------------

    def on_acknowledged(self, place: Place, value: str) -> None:
        with self._lock:
            before = self.acknowledged.setdefault(place, value)
            if before != value:
                self._fail(f"I1: {place} was acknowledged for {before} and for {value}")

    def on_read(self, place: Place, value: str, *, by_group: bool = False) -> None:
        with self._lock:
            self._take(place, value)
            if by_group:
                self._read_by_group.add(place)

    def _take(self, place: Place, value: str) -> None:
        before = self._content.setdefault(place, value)
        if before != value:
            self._fail(f"I2: {place} was {before}, and then {value}")
        self._values.add(value)
        if value in self._aborted:
            self._fail(f"T1: {value} was aborted, and is read at {place}")

    def on_aborted(self, value: str) -> None:
        with self._lock:
            self._aborted.add(value)
            if value in self._values:
                self._fail(f"T1: {value} was read, and then aborted")

    def on_high_watermark(self, consumer: str, partition: int, offset: int) -> None:
        with self._lock:
            before = self._high_watermarks.get((consumer, partition), -1)
            if offset < before:
                self._fail(
                    f"I3: {consumer} was told {before} of partition {partition}, then {offset}"
                )
            self._high_watermarks[consumer, partition] = offset

    def on_assignment(self, members: Mapping[str, Collection[int]]) -> None:
        """As one answer tells them, of all members of the group."""
        owners: dict[int, str] = {}
        with self._lock:
            self._ownership_count += any(members.values())
            for member, partitions in members.items():
                for partition in partitions:
                    if owners.setdefault(partition, member) != member:
                        self._fail(f"G1: {owners[partition]} and {member} have {partition}")

    @property
    def read_count(self) -> int:
        """Of the group, or of who follows what is committed."""
        return len(self._read_by_group)

    def unseen(self) -> list[str]:
        """What a run cannot vouch for, as nobody was ever told of it."""
        told = {
            "I3: no high watermark": self._high_watermarks,
            "G1: no owner": self._ownership_count,
        }
        return [f"{what} was ever told" for what, seen in told.items() if not seen]

    # In the end --------------------------------------------------------------------------------

    def missing_of_group(self) -> set[Place]:
        with self._lock:
            return self.acknowledged.keys() - self._read_by_group

    def finish(
        self, logs: Mapping[int, list[tuple[int, str]]], *, is_all_known: bool = False
    ) -> list[str]:
        """With all that a reader finds in each partition at last, in its order. ``is_all_known``: it
        is to be what was acknowledged, and nothing else."""
        known = set(self.acknowledged.values())
        for partition, records in logs.items():
            found: dict[str, int] = {}
            last: dict[str, int] = defaultdict(lambda: -1)
            for offset, value in records:
                self.on_read(Place(partition, offset), value)
                if is_all_known and value not in known:
                    self._fail(f"T2: {value} at {offset} of {partition} was never committed")
                if value in found:
                    self._fail(f"I1: {value} is at {found[value]} and {offset} of {partition}")
                found[value] = offset
                producer, _, number = value.rpartition(":")
                if int(number) <= last[producer]:
                    self._fail(f"I1: {value} comes behind {producer}:{last[producer]}")
                last[producer] = int(number)
            for place, value in self.acknowledged.items():
                if place.partition == partition and found.get(value) != place.offset:
                    self._fail(f"I1: {value}, acknowledged at {place}, is at {found.get(value)}")
        for place in self.acknowledged:
            if place.partition not in logs:
                self._fail(f"I1: nobody has read partition {place.partition}")
        for place in sorted(self.missing_of_group()):
            self._fail(f"G2: the group has not read {self.acknowledged[place]} at {place}")
        return self.failures
