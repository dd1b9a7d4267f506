"""Evaluates filters in a process of its own: ``python -m dashboard.filter_child``.

An expression may take for ever on a record, or more memory than there is; whoever runs it must be
able to end it. Requests come on stdin, answers go to stdout, each a length and a marshalled tuple.
Ends at the end of its stdin. The process holds nothing that is missed when it is killed.
"""

from __future__ import annotations

import marshal
import os
import resource
import struct
import sys
from functools import lru_cache
from typing import Any, BinaryIO, Final

from broker.clock import SystemClock
from dashboard.cluster import Record
from dashboard.expressions import EvaluationError, Expression, ExpressionError

UNMATCHED: Final = 0
MATCHED: Final = 1
FAILED: Final = 2
UNLOOKED: Final = 3
"""The time was over before this record."""
LENGTH: Final = struct.Struct("<I")
MEMORY_BYTES: Final = 1024 * 1024 * 1024
CPU_S: Final = 5
"""Of one request. The parent ends it sooner; this is for a child whose parent is gone."""


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while (request := _read(source)) is not None:
        _limit_cpu()
        _write(answers, answer(*request))


def answer(text: str, budget_ms: int, records: list[tuple[Any, ...]]) -> tuple[str, bytes, str]:
    """(what is wrong with the expression, a verdict for each record, the first failure)."""
    try:
        expression = _compiled(text)
    except ExpressionError as error:
        return str(error), b"", ""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + budget_ms
    verdicts = bytearray([UNLOOKED]) * len(records)
    first_failure = ""
    for index, values in enumerate(records):
        if clock.monotonic_ms() > end_ms:
            break
        try:
            verdicts[index] = MATCHED if expression.matches(Record(*values)) else UNMATCHED
        except EvaluationError as error:
            verdicts[index] = FAILED
            first_failure = first_failure or str(error)
    return "", bytes(verdicts), first_failure


def _limit_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_S + 1, hard))


@lru_cache(maxsize=64)
def _compiled(text: str) -> Expression:
    return Expression(text)


def _read(source: BinaryIO) -> tuple[str, int, list[tuple[Any, ...]]] | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    found: tuple[str, int, list[tuple[Any, ...]]] = marshal.loads(source.read(length))  # noqa: S302 - our own parent's
    return found


def _write(target: BinaryIO, value: tuple[str, bytes, str]) -> None:
    data = marshal.dumps(value)
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()


if __name__ == "__main__":
    main()
