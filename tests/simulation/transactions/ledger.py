"""A transaction as its producer knows it."""

from __future__ import annotations

from typing import NamedTuple


class Name(NamedTuple):
    """Of a producer. A later one of the same transactional id has a higher one: ids are given in order."""

    producer_id: int
    producer_epoch: int


class Part(NamedTuple):
    """What a record's value says."""

    transactional_id: str
    producer: int
    number: int
    part: int

    @property
    def transfer(self) -> tuple[str, int, int]:
        return self[:3]


def read_part(value: bytes) -> Part:
    """What stands behind the part is no matter here."""
    name, *numbers = value.decode().split(".")
    return Part(name, *map(int, numbers[:3]))


class Transfer:
    """So many records in each topic."""

    def __init__(
        self,
        transactional_id: str,
        producer: int,
        number: int,
        counts: dict[str, int],
        began_ms: int,
        first_name: Name,
    ) -> None:
        self.key = (transactional_id, producer, number)
        #: Which its producer was initialised with.
        self.first_name = first_name
        self.counts = counts
        self.began_ms = began_ms
        #: None until its end is asked for.
        self.is_commit_asked: bool | None = None
        #: None until the end is answered, and for ever if it is not.
        self.outcome: bool | None = None
        #: A later producer was initialised before its end was asked for: it can only be aborted.
        self.is_fenced = False
        #: Of a copy: the offset in the source that is committed with it.
        self.end_offset = -1

    @property
    def place(self) -> tuple[Name, int]:
        """Among those of its transactional id."""
        return self.first_name, self.key[2]

    def value(self, part: int) -> bytes:
        return ".".join(map(str, (*self.key, part))).encode()

    def __str__(self) -> str:
        return ".".join(map(str, self.key))
