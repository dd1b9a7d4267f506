"""History for charts: what series were worth over the last hour, day and week.

One SQLite file of its own (``samples.db`` in the data directory), so that the collector's writing
never waits for the dashboard's tables. Three rounds, each a mean of the finer one: a value every
10 s for an hour, every minute for a day, every ten minutes for a week. One transaction a tick.

Bounded: at most ``MAX_SERIES`` a tick are kept (the first that are given), and the file never
grows past ``MAX_BYTES``: then the oldest of the finest round goes first. A row holds all series of a
shard at one time, so that a tick writes some dozens of rows whatever the number of series.
Losing the file loses the history and nothing else: a damaged one is put aside and begun anew.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

FILE_NAME: Final = "samples.db"
MAX_BYTES: Final = 200 * 1024 * 1024
MAX_SERIES: Final = 3000
"""Of one tick. 3000 series take about 130 MB once a week is full."""
SHARDS: Final = 32
PAGE_BYTES: Final = 4096
_SLOT_BITS: Final = 40
_FORGET_AFTER_S: Final = 8 * 86400
_LONGEST_PAUSE_S: Final = 70
"""The collector's pause when nobody looks: a value speaks for as long before it."""


class Round(NamedTuple):
    step_s: int
    keep_s: int


ROUNDS: Final = (Round(10, 3600 + 600), Round(60, 86400 + 3600), Round(600, 7 * 86400 + 3600))
"""Each a little longer than its chart, so that the chart's left edge is never empty."""

Point = tuple[int, float | None]


class Samples:
    """``write`` from one thread of one process; ``read`` from any."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_pages = max_bytes // PAGE_BYTES
        self._ids: dict[str, int] = {}
        self._seen_s: dict[str, int] = {}
        self._writer: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    # -- writing ------------------------------------------------------------------------------

    def write(self, now_ms: int, values: Mapping[str, float]) -> int:
        """Keep what the series are worth now; returns how many found no room (``MAX_SERIES``)."""
        now_s = now_ms // 1000
        kept = dict(list(values.items())[:MAX_SERIES])
        with self._lock:
            try:
                self._write(now_s, kept)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and _is_full(error):
                    self._make_room()
                elif not isinstance(error, sqlite3.OperationalError):
                    self._put_aside(error)
                else:
                    raise
                self._write(now_s, kept)
        return len(values) - len(kept)

    def _write(self, now_s: int, values: Mapping[str, float]) -> None:
        connection = self._open()
        with connection:
            self._roll_up(connection, now_s)
            ids = self._ids_of(connection, values, now_s)
            pairs = sorted((ids[name], float(value)) for name, value in values.items())
            _put(connection, 0, now_s // ROUNDS[0].step_s, pairs)

    def _roll_up(self, connection: sqlite3.Connection, now_s: int) -> None:
        """Complete the slots of the coarser rounds that have ended since the last write."""
        for number in range(1, len(ROUNDS)):
            step_s, keep_s = ROUNDS[number]
            finer_s = ROUNDS[number - 1].step_s
            newest = _newest_slot(connection, number)
            first = _oldest_slot(connection, number - 1)
            if first is None:
                continue
            begin = first * finer_s // step_s if newest is None else newest + 1
            begin = max(begin, (now_s - ROUNDS[number - 1].keep_s) // step_s)
            for slot in range(begin, now_s // step_s):
                means = _means(connection, number - 1, slot * step_s, (slot + 1) * step_s)
                if means:
                    _put(connection, number, slot, sorted(means.items()))
                    self._expire(connection, number, now_s - keep_s)
        self._expire(connection, 0, now_s - ROUNDS[0].keep_s)

    def _expire(self, connection: sqlite3.Connection, number: int, before_s: int) -> None:
        last = _row_id(number, max(0, before_s // ROUNDS[number].step_s), 0)
        connection.execute(
            "DELETE FROM samples WHERE id BETWEEN ? AND ?", (_row_id(number, 0, 0), last - 1)
        )

    def _ids_of(
        self, connection: sqlite3.Connection, names: Iterable[str], now_s: int
    ) -> Mapping[str, int]:
        day = now_s // 86400
        for name in names:
            if name not in self._ids:
                row = connection.execute("SELECT id FROM series WHERE name=?", (name,)).fetchone()
                if row is None:
                    row = connection.execute(
                        "INSERT INTO series (name, seen_s) VALUES (?, ?) RETURNING id",
                        (name, now_s),
                    ).fetchone()
                self._ids[name] = row[0]
            if self._seen_s.get(name) != day:
                self._seen_s[name] = day
                connection.execute("UPDATE series SET seen_s=? WHERE name=?", (now_s, name))
        forgotten = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM series WHERE seen_s < ? LIMIT 500", (now_s - _FORGET_AFTER_S,)
            )
        ]
        for name in forgotten:
            self._ids.pop(name, None)
            self._seen_s.pop(name, None)
            connection.execute("DELETE FROM series WHERE name=?", (name,))
        return self._ids

    def _make_room(self) -> None:
        """The file has its full size: give up the older half of the largest round."""
        logger.warning("%s is full: older samples are given up", self._path)
        connection = self._open()
        with connection:
            for number in range(len(ROUNDS)):
                oldest, newest = _oldest_slot(connection, number), _newest_slot(connection, number)
                if oldest is not None and newest is not None:
                    middle = (oldest + newest + 1) // 2
                    self._expire(connection, number, (middle + 1) * ROUNDS[number].step_s)

    def _put_aside(self, error: Exception) -> None:
        logger.warning("%s is damaged (%s): history begins anew", self._path, error)
        self.close()
        self._path.replace(self._path.with_suffix(".damaged"))
        for suffix in ("-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def _open(self) -> sqlite3.Connection:
        if self._writer is None:
            connection = sqlite3.connect(self._path, timeout=5, check_same_thread=False)
            self._writer = connection
            connection.executescript(
                f"PRAGMA page_size={PAGE_BYTES}; PRAGMA journal_mode=WAL;"
                f" PRAGMA synchronous=NORMAL; PRAGMA max_page_count={self._max_pages};"
                " CREATE TABLE IF NOT EXISTS series"
                " (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, seen_s INTEGER NOT NULL);"
                " CREATE TABLE IF NOT EXISTS samples"
                " (id INTEGER PRIMARY KEY, series BLOB NOT NULL, worth BLOB NOT NULL);"
            )
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._ids, self._seen_s = {}, {}

    # -- reading ------------------------------------------------------------------------------

    def read(self, series: str, since_ms: int, until_ms: int, points: int = 360) -> list[Point]:
        """About ``points`` means at most, evenly spaced; None where nothing is known."""
        return self.read_many([series], since_ms, until_ms, points)[series]

    def read_many(
        self, names: Sequence[str], since_ms: int, until_ms: int, points: int = 360
    ) -> dict[str, list[Point]]:
        """Several series over the same times."""
        since_s, until_s = since_ms // 1000, until_ms // 1000
        number = round_for(since_s, until_s)
        step_s = ROUNDS[number].step_s
        first, last = since_s // step_s, max(since_s, until_s) // step_s
        per_point = max(1, -(-(last - first) // max(1, points)))
        found: dict[str, list[Point]] = {}
        with self._reading() as connection:
            for name in names:
                known = self._slots(connection, name, number, first, last)
                found[name] = [
                    (slot * step_s * 1000, _mean(known, slot, slot + per_point))
                    for slot in range(first, last + 1, per_point)
                ]
        return found

    def names(self, prefix: str, limit: int) -> list[str]:
        """Of series that begin with ``prefix``."""
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT name FROM series WHERE substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
                (len(prefix), prefix, limit),
            )
            return [str(row[0]) for row in rows]

    def _slots(
        self,
        connection: sqlite3.Connection | None,
        name: str,
        number: int,
        first: int,
        last: int,
    ) -> dict[int, float]:
        if connection is None:
            return {}
        row = connection.execute("SELECT id FROM series WHERE name=?", (name,)).fetchone()
        if row is None:
            return {}
        found = _values(connection, row[0], number, first, last)
        step_s = ROUNDS[number].step_s
        if number == 0:
            return _filled(found, _LONGEST_PAUSE_S // step_s)
        # The slots that have not ended yet are told from the finer rounds.
        newest = _newest_slot(connection, number)
        begin = max(first, first if newest is None else newest + 1)
        if begin <= last:
            finer_s = ROUNDS[number - 1].step_s
            finer = self._slots(
                connection,
                name,
                number - 1,
                begin * step_s // finer_s,
                (last + 1) * step_s // finer_s - 1,
            )
            by_slot: dict[int, list[float]] = {}
            for slot, value in finer.items():
                by_slot.setdefault(slot * finer_s // step_s, []).append(value)
            found.update({slot: sum(of) / len(of) for slot, of in by_slot.items()})
        return found

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """None when there is no history (yet, or any that can be read)."""
        if not self._path.exists():
            yield None
            return
        with contextlib.closing(
            sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=2)
        ) as connection:
            try:
                connection.execute("SELECT id FROM series LIMIT 1")
            except sqlite3.DatabaseError:
                yield None
                return
            yield connection

    def size_in_bytes(self) -> int:
        """Of the file and what SQLite keeps beside it."""
        paths = [self._path, Path(f"{self._path}-wal")]
        return sum(path.stat().st_size for path in paths if path.exists())


def round_for(since_s: int, until_s: int) -> int:
    """The finest round that is kept for as long as is asked."""
    for number, (_, keep_s) in enumerate(ROUNDS):
        if until_s - since_s <= keep_s:
            return number
    return len(ROUNDS) - 1


@cache
def samples() -> Samples:
    """Those of this process's data directory."""
    from django.conf import settings

    return Samples(Path(settings.DATA_DIR) / FILE_NAME)


def _row_id(number: int, slot: int, shard: int) -> int:
    return (number << (_SLOT_BITS + 8)) | (slot << 8) | shard


def _newest_slot(connection: sqlite3.Connection, number: int) -> int | None:
    return _edge_slot(connection, "max", number)


def _oldest_slot(connection: sqlite3.Connection, number: int) -> int | None:
    return _edge_slot(connection, "min", number)


def _edge_slot(connection: sqlite3.Connection, edge: str, number: int) -> int | None:
    (found,) = connection.execute(
        f"SELECT {edge}(id) FROM samples WHERE id >= ? AND id < ?",  # noqa: S608 - two words
        (_row_id(number, 0, 0), _row_id(number + 1, 0, 0)),
    ).fetchone()
    return None if found is None else (found >> 8) & ((1 << _SLOT_BITS) - 1)


def _put(
    connection: sqlite3.Connection, number: int, slot: int, pairs: Sequence[tuple[int, float]]
) -> None:
    """``pairs`` ascending by series; a row a shard, its series ascending for the search."""
    by_shard: dict[int, list[tuple[int, float]]] = {}
    for series, value in pairs:
        by_shard.setdefault(series % SHARDS, []).append((series, value))
    connection.executemany(
        "INSERT OR REPLACE INTO samples (id, series, worth) VALUES (?, ?, ?)",
        [
            (
                _row_id(number, slot, shard),
                array("I", [series for series, _ in of]).tobytes(),
                array("d", [value for _, value in of]).tobytes(),
            )
            for shard, of in sorted(by_shard.items())
        ],
    )


def _means(
    connection: sqlite3.Connection, number: int, since_s: int, until_s: int
) -> dict[int, float]:
    """Of every series between two times, from the round ``number``."""
    step_s = ROUNDS[number].step_s
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for series, worth in connection.execute(
        "SELECT series, worth FROM samples WHERE id >= ? AND id < ?",
        (_row_id(number, since_s // step_s, 0), _row_id(number, until_s // step_s, 0)),
    ):
        for key, value in zip(array("I", series), array("d", worth), strict=True):
            sums[key] = sums.get(key, 0.0) + value
            counts[key] = counts.get(key, 0) + 1
    return {key: total / counts[key] for key, total in sums.items()}


def _values(
    connection: sqlite3.Connection, series: int, number: int, first: int, last: int
) -> dict[int, float]:
    shard = series % SHARDS
    rows = [str(_row_id(number, slot, shard)) for slot in range(first, last + 1)]
    found = {}
    for row_id, keys, worth in connection.execute(
        "SELECT id, series, worth FROM samples"
        " WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (f"[{','.join(rows)}]",),
    ):
        known = array("I", keys)
        place = bisect_left(known, series)
        if place < len(known) and known[place] == series:
            value = array("d", worth[place * 8 : place * 8 + 8])[0]
            found[(row_id >> 8) & ((1 << _SLOT_BITS) - 1)] = value
    return found


def _filled(found: dict[int, float], reach: int) -> dict[int, float]:
    """A value speaks for the slots before it back to the last value, at most ``reach`` of them."""
    filled = dict(found)
    previous: int | None = None
    for slot in sorted(found):
        if previous is not None and 1 < slot - previous <= reach:
            for between in range(previous + 1, slot):
                filled[between] = found[slot]
        previous = slot
    return filled


def _mean(known: Mapping[int, float], first: int, end: int) -> float | None:
    values = [known[slot] for slot in range(first, end) if slot in known]
    return sum(values) / len(values) if values else None


def _is_full(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL
