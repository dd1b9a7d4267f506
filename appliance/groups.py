"""What several group commands need: choosing groups, the partitions meant, offsets and lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from appliance.failure import ItemError
from appliance.lag_age import Unread, ages_of
from appliance.options import PARTITIONS, TOPIC
from appliance.topics import (
    choose_partitions,
    compile_pattern,
    known_offsets,
    matching_names,
    split_failures,
)
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway, OffsetAt
from dashboard.groups import CommittedOffset, GroupView, MemberView

Commits = Mapping[TopicPartition, CommittedOffset]


def require_groups(names: Sequence[str], pattern: str | None, everything: bool) -> None:
    """Before anything is asked of a cluster."""
    if not names and pattern is None and not everything:
        raise click.UsageError("name a group, or choose some with -r REGEX or --all-groups")
    if pattern is not None:
        compile_pattern(pattern)


def choose_groups(
    gateway: Gateway, names: Sequence[str], pattern: str | None = None, everything: bool = False
) -> list[str]:
    """Named groups and those that match, each once."""
    chosen = list(names)
    if everything or pattern is not None:
        existing = [listing.group for listing in gateway.groups.listings()]
        wanted = existing if everything else matching_names(existing, compile_pattern(str(pattern)))
        chosen += wanted
    return list(dict.fromkeys(chosen))


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic of ``--topic``, with all its partitions or some."""

    topic: str
    partitions: frozenset[int] | None = None


class TopicScopeType(click.ParamType[TopicScope]):
    """``TOPIC`` or ``TOPIC:0,3-5``."""

    name = "topic"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicScope:
        if isinstance(value, TopicScope):
            return value
        topic, separator, partitions = value.partition(":")
        if not topic:
            self.fail(f"{value!r} is not TOPIC or TOPIC:0,3-5", param, ctx)
        if not separator:
            return TopicScope(topic)
        return TopicScope(topic, PARTITIONS.convert(partitions, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return TOPIC.shell_complete(ctx, param, incomplete)


TOPIC_SCOPE = TopicScopeType()


def scope_partitions(
    gateway: Gateway, scopes: Sequence[TopicScope]
) -> tuple[list[TopicPartition], list[ItemError]]:
    """The partitions meant, each once; errors for topics and partitions that do not exist."""
    topics, errors = split_failures(gateway.topics(list({scope.topic for scope in scopes})))
    keys: list[TopicPartition] = []
    for scope in scopes:
        if scope.topic in topics:
            found, more = choose_partitions(topics[scope.topic], scope.partitions)
            keys += found
            errors += more
    return list(dict.fromkeys(keys)), errors


def subject_of(key: TopicPartition) -> dict[str, Any]:
    """How an error names a partition."""
    return {"topic": key.topic, "partition": key.partition}


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A partition as a group sees it; None for what is not known."""

    key: TopicPartition
    committed: CommittedOffset | None
    log_start: int | None
    log_end: int | None
    member: MemberView | None
    seconds_behind: int | None = None
    """Age of the first record that it has not read; 0: it has read all of them."""

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return self.log_end - self.committed.offset


class GroupFigures:
    """Groups with their offsets and the logs that they read, each asked once for all of them."""

    def __init__(self, gateway: Gateway, names: Sequence[str]) -> None:
        self.errors: list[ItemError] = []
        self.views: dict[str, GroupView] = {}
        self._commits: dict[str, Commits] = {}
        commits = gateway.groups.committed(names)
        for name, view in gateway.groups.describe(names).items():
            committed = commits[name]
            if isinstance(view, KafkaFailure):
                self.errors.append(ItemError.of(view, group=name))
            elif isinstance(committed, KafkaFailure):
                self.errors.append(ItemError.of(committed, group=name))
            else:
                self.views[name] = view
                self._commits[name] = committed
        keys = sorted({key for name in self.views for key in self._partitions(name)})
        self._starts = known_offsets(gateway.offsets(keys, OffsetAt.EARLIEST))
        self._ends = known_offsets(gateway.offsets(keys, OffsetAt.LATEST))
        self._ages: dict[Unread, int] = {}

    def find_ages(self, gateway: Gateway, timeout_s: float) -> None:
        """Learn how far behind in time the groups are, which takes reading a record each."""
        keys = {(name, key) for name in self.views for key in self._commits[name]}
        unread = {one for name, key in keys if (one := self._unread(name, key)) is not None}
        self._ages = ages_of(gateway, unread, timeout_s)

    def _unread(self, name: str, key: TopicPartition) -> Unread | None:
        """Where the group would read on. None: nothing is there to be read, as far as is known."""
        committed, end = self._commits[name].get(key), self._ends.get(key)
        if committed is None or end is None or committed.offset >= end.offset:
            return None
        start = self._starts.get(key)
        return key, max(committed.offset, 0 if start is None else start.offset)

    def _seconds_behind(self, name: str, key: TopicPartition) -> int | None:
        if key not in self._commits[name] or key not in self._ends:
            return None
        unread = self._unread(name, key)
        return 0 if unread is None else self._ages.get(unread)

    def _partitions(self, name: str) -> set[TopicPartition]:
        """What the group has committed or is assigned."""
        assigned = (key for member in self.views[name].members for key in member.assignment)
        return {*self._commits[name], *assigned}

    def offsets(self, name: str) -> list[GroupOffset]:
        """One row a partition, sorted."""
        members = {key: member for member in self.views[name].members for key in member.assignment}
        commits = self._commits[name]
        return [
            GroupOffset(
                key,
                commits.get(key),
                self._starts[key].offset if key in self._starts else None,
                self._ends[key].offset if key in self._ends else None,
                members.get(key),
                self._seconds_behind(name, key),
            )
            for key in sorted(self._partitions(name))
        ]


def total_lag(rows: Iterable[GroupOffset]) -> int | None:
    """Records still to be read, where that is known; a partition that is ahead counts nothing."""
    known = [max(0, row.lag) for row in rows if row.lag is not None]
    return sum(known) if known else None


def most_behind(rows: Iterable[GroupOffset]) -> int | None:
    """In seconds, of the partition that is furthest behind, where that is known."""
    return max((row.seconds_behind for row in rows if row.seconds_behind is not None), default=None)
