"""``odradek group describe``: state, members, offsets and lag, or just what was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import click

from appliance import classic_groups
from appliance.failure import CommandError
from appliance.groups import (
    GroupFigures,
    GroupOffset,
    choose_groups,
    most_behind,
    require_groups,
    total_lag,
)
from appliance.options import GROUP, command, pass_session
from appliance.output import Column, Report, Table, render_description
from appliance.session import Session
from broker.model.ids import TopicPartition
from dashboard.groups import GroupView, MemberView

WATCH_INTERVAL_S = 1.0
OFFSET_COLUMNS = (
    Column("group", is_wide=True),
    Column("topic"),
    Column("partition", "count"),
    Column("current_offset", "count"),
    Column("log_start_offset", "count"),
    Column("log_end_offset", "count"),
    Column("lag", "count"),
    Column("seconds_behind", "count"),
    Column("consumer_id"),
    Column("host"),
    Column("client_id"),
    Column("leader_epoch", "count", is_wide=True),
    Column("metadata", is_wide=True),
)
MEMBER_COLUMNS = (
    Column("group", is_wide=True),
    Column("consumer_id"),
    Column("instance_id"),
    Column("host"),
    Column("client_id"),
    Column("partitions", "count"),
    Column("assignment"),
    Column("epoch", "count", is_wide=True),
    Column("target", is_wide=True),
)
TOPIC_COLUMNS = (
    Column("group", is_wide=True),
    Column("topic"),
    Column("partitions", "count"),
    Column("lag", "count"),
    Column("seconds_behind", "count"),
)


@dataclass(frozen=True, slots=True)
class Sections:
    """Which parts of a description were asked for."""

    summary: bool
    offsets: bool
    members: bool
    topics: bool

    @property
    def classic(self) -> str:
        """Kafka's tool prints one section at a time."""
        if self.offsets:
            return "offsets"
        return "members" if self.members else "state"


@command("describe", has_kafka_format=True)
@click.argument("names", nargs=-1, type=GROUP, metavar="[GROUP]...")
@click.option("-s", "--state", "summary", is_flag=True, help="The summary.")
@click.option("-c", "--offsets", is_flag=True, help="Committed offsets and lag.")
@click.option("-m", "--members", is_flag=True, help="The members and their partitions.")
@click.option("-t", "--topics", is_flag=True, help="Lag by topic.")
@click.option("-a", "--all", "everything", is_flag=True, help="All of it.")
@click.option("-r", "--regex", metavar="REGEX", help="Groups whose whole name matches.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and write whenever something changes.")
@pass_session
def describe(
    session: Session,
    names: tuple[str, ...],
    summary: bool,
    offsets: bool,
    members: bool,
    topics: bool,
    everything: bool,
    regex: str | None,
    all_groups: bool,
    watch: bool,
) -> int:
    """A group's state, and for each partition how far it has read.

    CURRENT-OFFSET is what the group has committed: the next record that it wants. SECONDS-BEHIND
    is the age of the first record that it has not read. With -s, -c, -m or -t only what they name.
    --format kafka prints what kafka-consumer-groups --describe does.
    """
    require_groups(names, regex, all_groups)
    is_default = not (summary or offsets or members or topics)
    sections = Sections(
        summary=summary or everything or is_default,
        offsets=offsets or everything or is_default,
        members=members or everything,
        topics=topics or everything,
    )

    def look() -> Report:
        gateway = session.gateway()
        chosen = choose_groups(gateway, names, regex, all_groups)
        if not chosen and regex is not None:
            raise CommandError(f"no group matches {regex!r}", code="GROUP_ID_NOT_FOUND")
        figures = GroupFigures(gateway, chosen)
        if session.format == "kafka":
            text = classic_text(session, figures, sections.classic)
            return Report(errors=figures.errors, text=text)
        figures.find_ages(gateway, session.timeout_s)
        return _report(figures, sections, wide=session.format == "wide")

    if not watch:
        return session.emit(look())
    last: Any = None
    while True:
        report = look()
        if (document := _without_ages(report.document())) != last:
            session.emit(report)
        last = document
        time.sleep(WATCH_INTERVAL_S)


def _without_ages(document: Any) -> Any:
    """What a group that stands still goes on showing while time passes."""
    if isinstance(document, list):
        return [_without_ages(item) for item in document]
    if isinstance(document, dict):
        return {k: _without_ages(item) for k, item in document.items() if k != "seconds_behind"}
    return document


def classic_text(
    session: Session, figures: GroupFigures, section: str, *, is_verbose: bool = False
) -> str:
    """One section as Kafka's tool prints it; remarks on states go to stderr, as there."""
    texts = []
    for name, view in sorted(figures.views.items()):
        if section == "offsets":
            rows = figures.offsets(name)
            texts.append(classic_groups.offsets_text(view, rows, is_verbose=is_verbose))
        elif section == "members":
            texts.append(classic_groups.members_text(view, is_verbose=is_verbose))
        else:
            texts.append(classic_groups.state_text(view, is_verbose=is_verbose))
        if view.is_vacant:
            session.note(f"\nConsumer group '{name}' has no active members.")
        elif view.state != "Stable":
            session.note(f"\nWarning: Consumer group '{name}' is rebalancing.")
    return "".join(texts)


def _report(figures: GroupFigures, sections: Sections, *, wide: bool) -> Report:
    report = Report(errors=figures.errors, data=[])
    texts = []
    for name, view in figures.views.items():
        rows = figures.offsets(name)
        document = _summary(view, rows)
        summary = _lines(document) if sections.summary else []
        tables = []
        if sections.topics:
            tables.append(Table(TOPIC_COLUMNS, list(_topic_rows(name, rows))))
            document["topic_list"] = tables[-1].objects()
        if sections.offsets:
            tables.append(Table(OFFSET_COLUMNS, [_offset_row(name, row) for row in rows]))
            document["offset_list"] = tables[-1].objects()
        if sections.members:
            tables.append(Table(MEMBER_COLUMNS, [_member_row(name, m) for m in view.members]))
            document["member_list"] = tables[-1].objects()
        assert report.data is not None
        report.data.append(document)
        report.tables += tables or [Table([Column(key) for key in document], [document])]
        texts.append(render_description(summary, tables, wide=wide))
    report.text = "\n".join(text for text in texts if text)
    return report


def _summary(view: GroupView, rows: Sequence[GroupOffset]) -> dict[str, Any]:
    coordinator = view.coordinator
    return {
        "group": view.group,
        "state": view.state,
        "type": view.group_type,
        "assignor": view.assignor,
        "coordinator": None if coordinator is None else coordinator.broker_id,
        "coordinator_address": None if coordinator is None else coordinator.address,
        "members": len(view.members),
        "lag": total_lag(rows),
        "seconds_behind": most_behind(rows),
        "group_epoch": view.group_epoch,
        "assignment_epoch": view.assignment_epoch,
    }


_RARE = ("group_epoch", "assignment_epoch")


def _lines(document: dict[str, Any]) -> list[tuple[str, Any]]:
    """The summary as text; epochs only where the group has them."""
    return [
        (key.upper().replace("_", "-"), value)
        for key, value in document.items()
        if value is not None or key not in _RARE
    ]


def _topic_rows(group: str, rows: Sequence[GroupOffset]) -> Iterator[dict[str, Any]]:
    for topic, found in groupby(rows, key=lambda row: row.key.topic):
        of_topic = list(found)
        yield {
            "group": group,
            "topic": topic,
            "partitions": len(of_topic),
            "lag": total_lag(of_topic),
            "seconds_behind": most_behind(of_topic),
        }


def _offset_row(group: str, row: GroupOffset) -> dict[str, Any]:
    member, committed = row.member, row.committed
    return {
        "group": group,
        "topic": row.key.topic,
        "partition": row.key.partition,
        "current_offset": None if committed is None else committed.offset,
        "log_start_offset": row.log_start,
        "log_end_offset": row.log_end,
        "lag": row.lag,
        "seconds_behind": row.seconds_behind,
        "consumer_id": None if member is None else member.member_id,
        "host": None if member is None else member.host,
        "client_id": None if member is None else member.client_id,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
    }


def _member_row(group: str, member: MemberView) -> dict[str, Any]:
    return {
        "group": group,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "partitions": len(member.assignment),
        "assignment": assignment_words(member.assignment),
        "epoch": member.epoch,
        "target": None if member.target is None else assignment_words(member.target),
    }


def assignment_words(keys: Sequence[TopicPartition]) -> tuple[str, ...]:
    """``topic:0,1,2``, as --topic takes it."""
    return tuple(
        f"{topic}:{','.join(str(key.partition) for key in found)}"
        for topic, found in groupby(keys, key=lambda key: key.topic)
    )
