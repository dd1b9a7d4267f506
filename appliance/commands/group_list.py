"""``odradek group list``: one line a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from appliance.groups import GroupFigures, GroupOffset, most_behind, total_lag
from appliance.options import command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from appliance.topics import compile_pattern, matching_names
from dashboard.groups import STATES, TYPES, GroupView

COLUMNS = (
    Column("group"),
    Column("state"),
    Column("type"),
    Column("members", "count"),
    Column("topics", "count"),
    Column("lag", "count"),
    Column("seconds_behind", "count"),
    Column("broker", "count"),
)
_GONE = "GROUP_ID_NOT_FOUND"


class WordListType(click.ParamType[frozenset[str]]):
    """Some of the given words, parted by commas, in whatever case."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        self._words = {word.lower(): word for word in words}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        found = [piece.strip().lower() for piece in value.split(",")]
        for word in found:
            if word not in self._words:
                known = ", ".join(self._words.values())
                self.fail(f"{word!r} is no {self.name}; there are {known}", param, ctx)
        return frozenset(self._words[word] for word in found)


STATE_LIST = WordListType("state", STATES)
TYPE_LIST = WordListType("type", TYPES)


@command("list", has_kafka_format=True)
@click.option("-s", "--state", "states", type=STATE_LIST, metavar="STATE,...", help="Only in them.")
@click.option("--type", "types", type=TYPE_LIST, metavar="TYPE,...", help="classic, consumer.")
@click.option("-r", "--regex", metavar="REGEX", help="Only groups whose whole name matches.")
@click.option(
    "--lag-over", type=click.IntRange(0), metavar="N", help="Only groups that lag by more records."
)
@pass_session
def list_groups(
    session: Session,
    states: frozenset[str] | None,
    types: frozenset[str] | None,
    regex: str | None,
    lag_over: int | None,
) -> int:
    """Consumer groups with their state and lag.

    LAG counts the offsets between what a group has committed and the ends of the logs,
    SECONDS-BEHIND the age of the oldest record that it has not read, TOPICS those that it has
    committed for or is assigned.
    """
    pattern = None if regex is None else compile_pattern(regex)
    gateway = session.gateway()
    listings = [
        listing
        for listing in gateway.groups.listings()
        if (states is None or listing.state in states)
        and (types is None or listing.group_type in types)
        and (pattern is None or matching_names([listing.group], pattern))
    ]
    if session.format == "kafka" and lag_over is None:
        return session.emit(Report(text="".join(f"{one.group}\n" for one in listings)))
    figures = GroupFigures(gateway, [listing.group for listing in listings])
    if session.format != "kafka":
        figures.find_ages(gateway, session.timeout_s)
    rows = [_row(view, figures.offsets(name)) for name, view in figures.views.items()]
    # A group that ended while we asked is no error.
    errors = [error for error in figures.errors if error.code != _GONE]
    if lag_over is not None:
        rows = [row for row in rows if (row["lag"] or 0) > lag_over]
    text = None
    if session.format == "kafka":
        text = "".join(f"{row['group']}\n" for row in rows)
    return session.emit(Report([Table(COLUMNS, rows)], errors, text=text))


def _row(view: GroupView, offsets: Sequence[GroupOffset]) -> dict[str, Any]:
    return {
        "group": view.group,
        "state": view.state,
        "type": view.group_type,
        "members": len(view.members),
        "topics": len({row.key.topic for row in offsets}),
        "lag": total_lag(offsets),
        "seconds_behind": most_behind(offsets),
        "broker": None if view.coordinator is None else view.coordinator.broker_id,
    }
