"""Filters of the live tail, evaluated in a child process that is killed when one takes too long.

The event loop never evaluates nor even compiles an expression: it hands records over and awaits
verdicts. One request at a time, in the order of asking, each with a budget of time that the child
keeps by itself; a single evaluation that does not end is ended here, and its expression is refused
for a while. The child starts with the first filter and ends with the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.clock import Clock
from dashboard.cluster import Record
from dashboard.filter_child import FAILED, LENGTH, MATCHED, UNLOOKED, UNMATCHED

__all__ = ["FAILED", "MATCHED", "UNLOOKED", "UNMATCHED", "FilterProcess", "FilterTrouble"]

BUDGET_MS: Final = 150
"""Of one request; records beyond it are not looked at."""
LIMIT_S: Final = 3.0
"""A request that takes longer ends the child."""
START_LIMIT_S: Final = 15.0
BANNED_MS: Final = 60_000
MAX_BANNED: Final = 100


class FilterTrouble(Exception):
    """Why an expression is not evaluated, in words."""


class BadFilter(FilterTrouble):
    """The expression itself is wrong."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One byte a record: UNMATCHED, MATCHED, FAILED, UNLOOKED."""

    each: bytes
    first_error: str = ""


class FilterProcess:
    """The child, started when it is needed. All methods belong to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._banned: dict[str, int] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def evaluate(self, text: str, records: Sequence[Record]) -> Verdicts:
        """Raises FilterTrouble."""
        self._check_ban(text)
        async with self._turn:
            self._check_ban(text)
            return await self._ask(text, records)

    async def close(self) -> None:
        async with self._turn:
            await self._kill()

    def _check_ban(self, text: str) -> None:
        until_ms = self._banned.get(text)
        if until_ms is None:
            return
        if self._clock.monotonic_ms() < until_ms:
            raise FilterTrouble("this filter takes too long on a record, it has been stopped")
        del self._banned[text]

    async def _ask(self, text: str, records: Sequence[Record]) -> Verdicts:
        process = await self._started()
        values: list[Any] = [
            (
                record.topic, record.partition, record.offset, record.timestamp_type,
                record.timestamp_ms, record.key, record.value, record.headers,
            )
            for record in records
        ]  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_S):
                wrong, each, first_error = await _exchange(process, (text, BUDGET_MS, values))
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            await self._kill()
            self._ban(text)
            raise FilterTrouble(
                "this filter takes too long on a record, it has been stopped"
            ) from None
        except BaseException:
            # Its answer would be taken for that of the next request.
            await self._kill()
            raise
        if wrong:
            raise BadFilter(wrong)
        return Verdicts(each, first_error)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dashboard.filter_child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await _exchange(process, ("true", BUDGET_MS, []))
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            await self._kill()
            raise FilterTrouble("the process that evaluates filters does not start") from None
        except BaseException:
            await self._kill()
            raise
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()

    def _ban(self, text: str) -> None:
        while len(self._banned) >= MAX_BANNED:
            del self._banned[next(iter(self._banned))]
        self._banned[text] = self._clock.monotonic_ms() + BANNED_MS


async def _exchange(
    process: asyncio.subprocess.Process, request: tuple[str, int, list[Any]]
) -> tuple[str, bytes, str]:
    assert process.stdin is not None
    assert process.stdout is not None
    data = marshal.dumps(request)
    process.stdin.write(LENGTH.pack(len(data)) + data)
    await process.stdin.drain()
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    found: tuple[str, bytes, str] = marshal.loads(await process.stdout.readexactly(length))  # noqa: S302 - our own child's
    return found
