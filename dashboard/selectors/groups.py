"""What pages show of consumer groups: choosing, sorting and paging them, and words for figures.

Pure reading of a snapshot; a page costs what it shows plus one pass over the groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from broker.model.ids import TopicPartition
from dashboard.groups import MemberView
from dashboard.lag_status import severity, worst
from dashboard.lag_time import Exactness
from dashboard.snapshots import ClusterSnapshot, GroupPartitionState, GroupState
from dashboard.templatetags.show import DASH, STATUS_CLASSES, STATUS_WORDS, duration, number, rate

PAGE_SIZES: Final = (25, 50, 100, 200)
REFRESH_CHOICES: Final = (0, 2, 5, 10, 30)
MAX_TOPICS_NAMED: Final = 2
Key = Callable[[GroupState], Any]
SORTS: Final[dict[str, tuple[str, Key]]] = {
    "group": ("Group", lambda one: one.group),
    "state": ("State", lambda one: one.state),
    "status": ("Status", lambda one: severity(one.status)),
    "members": ("Members", lambda one: one.member_count),
    "topics": ("Topics", lambda one: len(one.topics)),
    "lag": ("Lag", lambda one: one.lag),
    "behind": ("Behind", lambda one: one.lag_ms),
    "coordinator": ("Coordinator", lambda one: one.coordinator),
}
NUMERIC_COLUMNS: Final = frozenset({"members", "lag", "behind", "coordinator"})
_STEADY_PER_MINUTE: Final = 0.01
"""Of the lag: a smaller change is called steady."""


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """What a list was asked for, from its URL; whatever makes no sense is left out."""

    text: str = ""
    topic: str = ""
    state: str = ""
    status: str = ""
    sort: str = "lag"
    is_descending: bool = True
    page: int = 1
    size: int = 50

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> GroupQuery:
        sort = parameters.get("sort", "-lag")
        name = sort.removeprefix("-")
        size = _natural(parameters.get("size"), 50)
        return cls(
            text=parameters.get("q", "").strip(),
            topic=parameters.get("topic", "").strip(),
            state=parameters.get("state", ""),
            status=parameters.get("status", ""),
            sort=name if name in SORTS else "lag",
            is_descending=sort.startswith("-") or name not in SORTS,
            page=max(1, _natural(parameters.get("page"), 1)),
            size=size if size in PAGE_SIZES else 50,
        )

    @property
    def is_filtered(self) -> bool:
        return bool(self.text or self.topic or self.state or self.status)


class LagTime(NamedTuple):
    """``text`` for the cell, ``title`` says how exact it is."""

    text: str
    title: str


class Trend(NamedTuple):
    arrow: str
    word: str


class GroupRow(NamedTuple):
    group: GroupState
    trend: Trend
    behind: LagTime
    status_word: str
    status_class: str
    topics: tuple[str, ...]
    more_topics: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    rows: list[GroupRow]
    total: int
    """That match; ``all_count`` exist."""
    all_count: int
    page: int
    page_count: int
    states: list[str]
    """For the filter: those that occur."""
    counts: Mapping[str, int]
    """Groups by status, of all."""

    @property
    def previous(self) -> int:
        return self.page - 1

    @property
    def next(self) -> int:
        return self.page + 1


class GroupBoard:
    """All groups of one snapshot, in every order that was asked for so far: with ten thousand of them
    a page costs a filter and the rows that it shows, not their sorting."""

    def __init__(self, groups: Mapping[str, GroupState]) -> None:
        self.groups = groups
        counts: dict[str, int] = {}
        states: set[str] = set()
        for one in groups.values():
            name = one.status or "unknown"
            counts[name] = counts.get(name, 0) + 1
            if one.state:
                states.add(one.state)
        self.counts: Mapping[str, int] = counts
        self.states = sorted(states)
        self._orders: dict[tuple[str, bool], list[GroupState]] = {}

    def chosen(self, query: GroupQuery) -> Sequence[GroupState]:
        """Those that match, sorted; what is not known comes last in both directions."""
        found = self._ordered(query.sort, is_descending=query.is_descending)
        if query.status:
            found = [one for one in found if (one.status or "unknown") == query.status]
        if query.state:
            found = [one for one in found if one.state == query.state]
        if query.topic:
            found = [one for one in found if query.topic in one.topics]
        if query.text:
            text = query.text.casefold()
            found = [one for one in found if text in one.group.casefold()]
        return found

    def _ordered(self, sort: str, *, is_descending: bool) -> list[GroupState]:
        found = self._orders.get((sort, is_descending))
        if found is None:
            # Two readers may both sort: they find the same.
            known: list[GroupState] = []
            unknown: list[GroupState] = []
            key = SORTS[sort][1]
            for one in self.groups.values():
                (unknown if key(one) is None else known).append(one)
            known.sort(key=key, reverse=is_descending)
            found = self._orders[sort, is_descending] = known + unknown
        return found


_lock = threading.Lock()
_board = GroupBoard({})


def board_of(groups: Mapping[str, GroupState]) -> GroupBoard:
    """Made once for all groups of a snapshot; only the newest is kept."""
    global _board
    with _lock:
        if _board.groups is not groups:
            _board = GroupBoard(groups)
        return _board


def chosen_groups(groups: Mapping[str, GroupState], query: GroupQuery) -> Sequence[GroupState]:
    """Those that match, sorted; what is not known comes last in both directions."""
    return board_of(groups).chosen(query)


def page_of(groups: Mapping[str, GroupState], query: GroupQuery) -> GroupPage:
    board = board_of(groups)
    found = board.chosen(query)
    page_count = max(1, -(-len(found) // query.size))
    page = min(query.page, page_count)
    return GroupPage(
        [row_of(one) for one in found[(page - 1) * query.size : page * query.size]],
        len(found),
        len(groups),
        page,
        page_count,
        board.states,
        board.counts,
    )


def row_of(group: GroupState) -> GroupRow:
    return GroupRow(
        group,
        trend_of(group),
        lag_time(group.lag_ms, group.lag_ms_is),
        STATUS_WORDS.get(group.status, "not known"),
        STATUS_CLASSES.get(group.status, ""),
        group.topics[:MAX_TOPICS_NAMED],
        max(0, len(group.topics) - MAX_TOPICS_NAMED),
    )


def groups_of_topic(snapshot: ClusterSnapshot, topic: str) -> list[GroupState]:
    """The groups that have committed offsets of the topic, or read it now; most lag first. Each
    with the partitions of this topic alone and their lag."""
    found = []
    for group in snapshot.groups.values():
        if topic in group.topics:
            found.append(_restricted(group, topic))
    return sorted(found, key=lambda one: (-(one.lag or 0), one.group))


def _restricted(group: GroupState, topic: str) -> GroupState:
    partitions = tuple(one for one in group.partitions if one.topic == topic)
    lags = [max(0, one.lag) for one in partitions if one.lag is not None]
    aged = [one for one in partitions if one.lag_ms is not None]
    oldest = max(aged, key=lambda one: one.lag_ms or 0, default=None)
    return replace(
        group,
        partitions=partitions,
        lag=sum(lags) if lags else None,
        lag_ms=oldest.lag_ms if oldest is not None else None,
        lag_ms_is=oldest.lag_ms_is if oldest is not None else None,
        status=worst(one.status for one in partitions),
        trend=None,
    )


def lag_time(lag_ms: int | None, lag_ms_is: str | None) -> LagTime:
    if lag_ms is None:
        return LagTime(DASH, "not known")
    if lag_ms_is == Exactness.AT_LEAST:
        if lag_ms < 1000:
            return LagTime(DASH, "not known yet: it was there before the first look")
        return LagTime(f"> {duration(lag_ms)}", "it was there already when it was looked at first")
    if lag_ms_is == Exactness.ABOUT:
        return LagTime(f"≈ {duration(lag_ms)}", "from the ends of the log, seen at each tick")
    if lag_ms == 0:
        return LagTime("0 s", "everything is read")
    return LagTime(duration(lag_ms), "the timestamp of the first unread record")


def trend_of(group: GroupState) -> Trend:
    """Which way the lag goes."""
    if group.trend is None or group.lag is None:
        return Trend("", "")
    if not group.lag and group.trend <= 0:
        return Trend("", "")
    steady = max(1 / 60, group.lag * _STEADY_PER_MINUTE / 60)
    if group.trend >= steady:
        return Trend("▲", f"growing by {rate(group.trend)}")
    if group.trend <= -steady:
        return Trend("▼", f"shrinking by {rate(-group.trend)}")
    return Trend("▬", "steady")


class PartitionRow(NamedTuple):
    partition: GroupPartitionState
    behind: LagTime
    status_word: str
    status_class: str
    is_readable: bool
    """Whether a record may lie at the committed offset, so that it is worth a link."""


def partition_rows(group: GroupState, *, only_lagging: bool = False) -> list[PartitionRow]:
    return [
        PartitionRow(
            one,
            lag_time(one.lag_ms, one.lag_ms_is),
            STATUS_WORDS.get(one.status, "nothing committed"),
            STATUS_CLASSES.get(one.status, ""),
            bool(one.lag and one.lag > 0),
        )
        for one in group.partitions
        if not only_lagging or (one.lag or 0) > 0
    ]


class MemberRow(NamedTuple):
    """``assignment`` and ``target`` in words: ``orders 0-3, 7``. ``target`` where it differs."""

    member: MemberView
    assignment: list[tuple[str, str]]
    target: list[tuple[str, str]]
    partition_count: int


def member_rows(group: GroupState) -> list[MemberRow]:
    found = []
    for member in group.members:
        is_moving = member.target is not None and member.target != member.assignment
        target = assignment_words(member.target or ()) if is_moving else []
        words = assignment_words(member.assignment)
        found.append(MemberRow(member, words, target, len(member.assignment)))
    return found


def assignment_words(keys: Iterable[TopicPartition]) -> list[tuple[str, str]]:
    """By topic, with runs of partitions drawn together: ``0-3, 7``."""
    words = []
    for topic, of_topic in groupby(sorted(keys), key=lambda key: key.topic):
        runs: list[list[int]] = []
        for key in of_topic:
            if runs and key.partition == runs[-1][-1] + 1:
                runs[-1][1:] = [key.partition]
            else:
                runs.append([key.partition])
        words.append((topic, ", ".join("-".join(map(str, run)) for run in runs)))
    return words


# CSV: exactly what the filter shows, all pages

GROUP_COLUMNS: Final = (
    "group", "type", "state", "status", "reason", "members", "topics", "lag", "trend_per_s",
    "lag_ms", "lag_ms_is", "coordinator", "stale_since_ms",
)  # fmt: skip
PARTITION_COLUMNS: Final = (
    "group", "state", "topic", "partition", "committed_offset", "log_end_offset", "lag", "lag_ms",
    "lag_ms_is", "status", "reason", "member_id", "client_id", "host",
)  # fmt: skip


def csv_rows(groups: Iterable[GroupState], *, by_partition: bool) -> Iterator[Sequence[Any]]:
    yield PARTITION_COLUMNS if by_partition else GROUP_COLUMNS
    for one in groups:
        if by_partition:
            for part in one.partitions:
                yield (
                    one.group, one.state, part.topic, part.partition, part.committed_offset,
                    part.log_end_offset, part.lag, part.lag_ms, part.lag_ms_is, part.status,
                    part.reason, part.member_id, part.client_id, part.host,
                )  # fmt: skip
        else:
            yield (
                one.group, one.group_type, one.state, one.status, one.reason, one.member_count,
                " ".join(one.topics), one.lag, None if one.trend is None else round(one.trend, 3),
                one.lag_ms, one.lag_ms_is, one.coordinator, one.stale_since_ms,
            )  # fmt: skip


def safe_cell(value: Any) -> Any:
    """Spreadsheets run a text that starts like a formula; a group's name can hold anything."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def summary(page: GroupPage) -> str:
    groups = f"{number(page.all_count)} group{'' if page.all_count == 1 else 's'}"
    return groups if page.total == page.all_count else f"{number(page.total)} of {groups}"


def _natural(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
