"""Many reads in one request: ZooKeeper's ``multiRead`` (operation 22, from 3.6 on), which kazoo has not.

A cluster of 5,000 partitions has 15,000 nodes. Asked for one by one, they take a new controller longer
than a leader's lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from kazoo.exceptions import EXCEPTIONS, NoNodeError, UnimplementedError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    stat_struct,
)

from broker.metadata.store import Failed

#: Reads of one request: it has about 30 KB, its answer about 100 KB, which take some milliseconds.
MAX_READS: Final = 500

_NO_TYPE: Final = -1

#: kazoo's ``GetData`` or ``GetChildren``, without a watcher.
Read: TypeAlias = Any

#: A node: path, data, kazoo's stat.
Found: TypeAlias = tuple[str, bytes, Any]

#: Sends a request; callbacks come in the order of the calls.
Ask: TypeAlias = Callable[["MultiRead", Callable[[list[Any] | Failed], None]], None]


class MultiRead:
    """A request as kazoo wants it. Its answer has for each read (data, stat) or the children's names, or an
    exception in their place."""

    type: Final = 22

    def __init__(self, reads: Sequence[Read]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        parts = bytearray()
        for read in self.reads:
            parts += MultiHeader(read.type, False, -1).serialize() + read.serialize()
        return bytes(parts + MultiHeader(_NO_TYPE, True, -1).serialize())

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[Any]:
        return list(_results(answer, offset))


def _results(answer: bytes, offset: int) -> Iterator[Any]:
    while True:
        header, offset = MultiHeader.deserialize(answer, offset)
        if header.done:
            return
        if header.type == GetData.type:
            yield GetData.deserialize(answer, offset)
            offset = _after_string(answer, offset) + stat_struct.size
        elif header.type == GetChildren.type:
            yield GetChildren.deserialize(answer, offset)
            (count,) = int_struct.unpack_from(answer, offset)
            offset += int_struct.size
            for _ in range(count):
                offset = _after_string(answer, offset)
        else:
            (code,) = int_struct.unpack_from(answer, offset)
            offset += int_struct.size
            yield EXCEPTIONS[code]()


def _after_string(answer: bytes, offset: int) -> int:
    length: int = int_struct.unpack_from(answer, offset)[0]
    begin: int = offset + int_struct.size
    return begin + max(0, length)


class SubtreeWalk:
    """Reads a node and all below it, a level at a time; who is gone by the time it is read is left out.

    ``done`` once, with (path, data, stat) of each node: parents before children, siblings in order.
    """

    def __init__(self, ask: Ask, done: Callable[[list[Found] | Failed], None]) -> None:
        self._ask = ask
        self._done = done
        self._found: list[Found] = []

    def start(self, path: str) -> None:
        self._read([path])

    def _read(self, level: list[str]) -> None:
        def received(answers: list[Any]) -> None:
            found = [(path, *node) for path, node in zip(level, answers, strict=True) if node]
            self._found += found
            self._list([path for path, _, stat in found if stat.children_count])

        self._all(GetData, level, received)

    def _list(self, parents: list[str]) -> None:
        def received(answers: list[Any]) -> None:
            self._read(
                [
                    f"{parent.rstrip('/')}/{name}"
                    for parent, names in zip(parents, answers, strict=True)
                    for name in sorted(names or ())
                ]
            )

        self._all(GetChildren, parents, received)

    def _all(
        self, kind: Callable[..., Read], paths: list[str], received: Callable[[list[Any]], None]
    ) -> None:
        """``received`` with an answer for each of ``paths``, None of who is gone. Without any the walk ends."""
        if not paths:
            self._done(self._found)
            return
        slices = [paths[at : at + MAX_READS] for at in range(0, len(paths), MAX_READS)]
        answers: list[list[Any] | Failed] = []

        def answered(some: list[Any] | Failed) -> None:
            # They come in the order of the requests.
            answers.append(some)
            if len(answers) < len(slices):
                return
            flat: list[Any] = []
            for each in answers:
                whole = each if isinstance(each, Failed) else _without_gone(each)
                if isinstance(whole, Failed):
                    self._done(whole)
                    return
                flat += whole
            received(flat)

        for some in slices:
            self._ask(MultiRead([kind(path, None) for path in some]), answered)


def _without_gone(answers: list[Any]) -> list[Any] | Failed:
    for position, answer in enumerate(answers):
        if isinstance(answer, NoNodeError):
            answers[position] = None
        elif isinstance(answer, Exception):
            return Failed(f"ZooKeeper said: {answer!r}")
    return answers


def failure(error: Exception) -> Failed:
    """Why a whole request had no answer."""
    if isinstance(error, UnimplementedError):
        return Failed("this ZooKeeper is older than 3.6")
    return Failed(f"ZooKeeper said: {error!r}")
