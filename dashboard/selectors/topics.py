"""The list of topics as its page, its CSV and the API show it: rows of the newest snapshot.

Rows and their orders are made once a snapshot and shared by all readers: a page costs a filter
over names and the rows that it shows, not what the cluster holds. What is not known comes last,
whichever way a column is sorted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import urlencode

from dashboard.snapshots import ClusterSnapshot, GroupState, TopicState

PAGE_SIZE = 50
LONGEST_SEARCH = 249
"""A topic's name is not longer."""
DEFAULT_SORT = "name"


class TopicRow(NamedTuple):
    name: str
    folded: str
    """The name as it is searched."""
    is_internal: bool
    partition_count: int
    replication_factor: int
    out_of_sync: int
    """Replicas that are assigned and not in sync."""
    offline: int
    """Partitions without a leader."""
    record_count: int | None
    size_bytes: int | None
    records_in_rate: float | None
    bytes_in_rate: float | None
    cleanup_policy: str | None
    lag: int | None
    """Of the group that is furthest behind here; None when none reads it."""
    lag_group: str | None
    stale_since_ms: int | None


class Column(NamedTuple):
    key: str
    """As the address has it."""
    label: str
    is_number: bool
    value: Callable[[TopicRow], Any]


COLUMNS = (
    Column("name", "Name", False, lambda row: row.name),
    Column("partitions", "Partitions", True, lambda row: row.partition_count),
    Column("replicas", "Replicas", True, lambda row: row.replication_factor),
    Column("out-of-sync", "Out of sync", True, lambda row: row.out_of_sync),
    Column("records", "Max. records", True, lambda row: row.record_count),
    Column("size", "Size", True, lambda row: row.size_bytes),
    Column("rate", "Rate in", True, lambda row: row.records_in_rate),
    Column("policy", "Cleanup", False, lambda row: row.cleanup_policy),
    Column("lag", "Largest lag", True, lambda row: row.lag),
)
_BY_KEY = {column.key: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """What a person asked of the list; ``encode`` is its one form in an address."""

    search: str = ""
    sort: str = DEFAULT_SORT
    """A column's key, with ``-`` before it for descending."""
    page: int = 1
    shows_internal: bool = False
    only_favourites: bool = False
    favourites: frozenset[str] = frozenset()
    """Of who asks; no part of the address."""

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        *,
        shows_internal: bool,
        favourites: frozenset[str] = frozenset(),
    ) -> TopicQuery:
        """From an address; what makes no sense there counts as not said."""
        sort = str(parameters.get("sort", DEFAULT_SORT))
        page = str(parameters.get("page", ""))
        return cls(
            search=str(parameters.get("q", "")).strip()[:LONGEST_SEARCH],
            sort=sort if sort.removeprefix("-") in _BY_KEY else DEFAULT_SORT,
            page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 9 else 1,
            shows_internal=shows_internal,
            only_favourites=parameters.get("only") == "favourites",
            favourites=favourites,
        )

    @property
    def column(self) -> Column:
        return _BY_KEY[self.sort.removeprefix("-")]

    @property
    def is_descending(self) -> bool:
        return self.sort.startswith("-")

    def encode(self, **changes: Any) -> str:
        """The query part of the address, without what goes without saying."""
        asked = replace(self, **changes)
        parts = {
            "q": asked.search,
            "sort": "" if asked.sort == DEFAULT_SORT else asked.sort,
            "page": "" if asked.page == 1 else asked.page,
            "internal": "1" if asked.shows_internal else "",
            "only": "favourites" if asked.only_favourites else "",
        }
        return urlencode({name: value for name, value in parts.items() if value != ""})

    def sorted_by(self, column: Column) -> str:
        """The sort of a click on this column: figures begin with the largest."""
        up, down = column.key, f"-{column.key}"
        first, second = (down, up) if column.is_number else (up, down)
        return second if self.sort == first else first


@dataclass(frozen=True, slots=True)
class TopicPage:
    rows: Sequence[TopicRow]
    number: int
    last: int
    total: int
    """Of all pages."""
    hidden_count: int
    """Internal topics that fit the search and are not shown."""

    @property
    def first_row(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last_row(self) -> int:
        return self.first_row + len(self.rows) - 1 if self.total else 0


class TopicBoard:
    """All topics of one snapshot, in every order that was asked for so far.

    Rows of topics that have not changed are those of the board before, and so are the orders when
    no row has: a snapshot is seldom all new.
    """

    def __init__(self, snapshot: ClusterSnapshot, before: TopicBoard | None = None) -> None:
        self.snapshot = snapshot
        lags = _largest_lags(snapshot.groups.values())
        known = before.rows if before is not None else {}
        self.rows: dict[str, tuple[TopicState, TopicRow]] = {}
        is_same = before is not None and len(known) == len(snapshot.topics)
        for name, topic in snapshot.topics.items():
            old = known.get(name)
            if (
                old is not None
                and old[0] is topic
                and (old[1].lag, old[1].lag_group) == lags.get(name, NO_LAG)
            ):
                self.rows[name] = old
            else:
                self.rows[name] = (topic, _row(topic, lags.get(name, NO_LAG)))
                is_same = False
        self._orders: dict[str, Sequence[TopicRow]] = {}
        if is_same and before is not None:
            self._orders = before._orders

    def ordered(self, query: TopicQuery) -> Sequence[TopicRow]:
        found = self._orders.get(query.sort)
        if found is None:
            # Two readers may both sort: they find the same.
            rows = [row for _, row in self.rows.values()]
            found = self._orders[query.sort] = _sorted(
                rows, query.column, descending=query.is_descending
            )
        return found

    def matching(self, query: TopicQuery) -> tuple[list[TopicRow], int]:
        """Rows that hold every word of the search, and how many internal ones are hidden."""
        rows: Iterable[TopicRow] = self.ordered(query)
        if query.only_favourites:
            rows = [row for row in rows if row.name in query.favourites]
        for word in query.search.casefold().split():
            rows = [row for row in rows if word in row.folded]
        if query.shows_internal or query.only_favourites:
            return list(rows), 0
        found = list(rows)
        shown = [row for row in found if not row.is_internal]
        return shown, len(found) - len(shown)

    def page(self, query: TopicQuery) -> TopicPage:
        """A page past the last one is the last one: topics may have gone meanwhile."""
        rows, hidden_count = self.matching(query)
        last = max(1, math.ceil(len(rows) / PAGE_SIZE))
        number = min(query.page, last)
        start = (number - 1) * PAGE_SIZE
        return TopicPage(rows[start : start + PAGE_SIZE], number, last, len(rows), hidden_count)


_lock = threading.Lock()
_board: TopicBoard | None = None


def board_of(snapshot: ClusterSnapshot) -> TopicBoard:
    """Made once for each snapshot; only the newest is kept."""
    global _board
    with _lock:
        if _board is None or _board.snapshot is not snapshot:
            _board = TopicBoard(snapshot, _board)
        return _board


def _row(topic: TopicState, lag: tuple[int | None, str | None]) -> TopicRow:
    out_of_sync = offline = 0
    for partition in topic.partitions:
        out_of_sync += max(0, len(partition.replicas) - len(partition.isr))
        offline += partition.leader is None
    return TopicRow(
        topic.name,
        topic.name.casefold(),
        topic.is_internal,
        len(topic.partitions),
        topic.replication_factor,
        out_of_sync,
        offline,
        topic.record_count,
        topic.size_bytes,
        topic.records_in_rate,
        topic.bytes_in_rate,
        topic.cleanup_policy,
        *lag,
        topic.stale_since_ms,
    )


def _sorted(rows: Sequence[TopicRow], column: Column, *, descending: bool) -> tuple[TopicRow, ...]:
    # ``rows`` come sorted by name, and sorting is stable: names ascend among equals both ways.
    known, unknown = [], []
    for row in rows:
        value = column.value(row)
        if value is None:
            unknown.append(row)
        else:
            known.append((value, row))
    known.sort(key=itemgetter(0), reverse=descending)
    return (*(row for _, row in known), *unknown)


NO_LAG = (None, None)


def _largest_lags(groups: Iterable[GroupState]) -> dict[str, tuple[int, str]]:
    """By topic: the lag of the group that is furthest behind, and that group."""
    largest: dict[str, tuple[int, str]] = {}
    for group in groups:
        for topic, lag in lag_by_topic(group).items():
            if topic not in largest or lag > largest[topic][0]:
                largest[topic] = (lag, group.group)
    return largest


def lag_by_topic(group: GroupState) -> dict[str, int]:
    """Of the topics where it is known. A partition that is ahead of its log's end (which was lost, or
    whose topic was made anew) counts nothing: it must not hide what others have left to read."""
    sums: dict[str, int] = {}
    for partition in group.partitions:
        if partition.lag is not None:
            sums[partition.topic] = sums.get(partition.topic, 0) + max(0, partition.lag)
    return sums
