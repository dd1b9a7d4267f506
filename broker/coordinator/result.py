"""What a machine answers: records to be written, and a response to be given once they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from broker.model.error_code import ErrorCode

R = TypeVar("R")


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic. ``value`` None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """Whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class CoordinatorResult(Generic[R]):
    """``response`` is for whoever asked, ``on_written`` for the machine itself.

    ``on_written`` is called once: with NONE when the records are committed, else with the reason
    (and then they may or may not be in the log). It may return a further result to be performed.
    ``is_replayed`` False: the machine has noted these records already, or does so in
    ``on_written``. ``may_be_split``: these records need not be written together. ``producer``: they
    are part of its transaction, and take effect with its end.
    """

    __slots__ = ("is_replayed", "may_be_split", "on_written", "producer", "records", "response")

    def __init__(
        self,
        response: R,
        records: Sequence[CoordinatorRecord] = (),
        *,
        on_written: Callable[[ErrorCode], CoordinatorResult[None] | None] | None = None,
        is_replayed: bool = True,
        may_be_split: bool = False,
        producer: Producer | None = None,
    ) -> None:
        self.response = response
        self.records = records
        self.on_written = on_written
        self.is_replayed = is_replayed
        self.may_be_split = may_be_split
        self.producer = producer


def nothing() -> CoordinatorResult[None]:
    """No records, and nobody who waits for a response."""
    return CoordinatorResult(None)
