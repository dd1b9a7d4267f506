"""Groups as kafka-consumer-groups prints them: scripts cut these columns out. Pure.

``is_verbose`` adds the columns of its --verbose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from appliance.groups import GroupOffset
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.groups import GroupListing, GroupView

_NONE = "-"
_WIDTH = 15
_Cell = str | int | None


def offsets_text(view: GroupView, rows: Sequence[GroupOffset], *, is_verbose: bool = False) -> str:
    """Without a commit and without a member there is nothing to print."""
    if not rows:
        return ""
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    widths = [_WIDTH, _WIDTH, 10, _WIDTH, _WIDTH, _WIDTH]
    if is_verbose:
        head.insert(3, "LEADER-EPOCH")
        widths.insert(3, _WIDTH)
    lines = []
    for row in rows:
        committed, member = row.committed, row.member
        line: list[_Cell] = [
            view.group,
            row.key.topic,
            row.key.partition,
            *([None if committed is None else committed.leader_epoch] if is_verbose else []),
            None if committed is None else committed.offset,
            row.log_end,
            row.lag,
            None if member is None else member.member_id,
            None if member is None else member.host,
            None if member is None else member.client_id,
        ]
        lines.append(line)
    return _table([*head, "CONSUMER-ID", "HOST", "CLIENT-ID"], [*widths, _WIDTH, _WIDTH, 0], lines)


def members_text(view: GroupView, *, is_verbose: bool = False) -> str:
    has_instances = any(member.instance_id is not None for member in view.members)
    instance = ["GROUP-INSTANCE-ID"] if has_instances else []
    head = ["GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [_WIDTH, _WIDTH, *([17] if has_instances else []), _WIDTH, _WIDTH, _WIDTH]
    if is_verbose:
        head += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [_WIDTH, 20, _WIDTH, 20]
    lines = []
    for member in view.members:
        line: list[_Cell] = [
            view.group,
            member.member_id,
            *([member.instance_id or ""] if has_instances else []),
            member.host,
            member.client_id,
            len(member.assignment),
        ]
        if is_verbose:
            line += [member.epoch, _assignment(member.assignment)]
            line += [view.assignment_epoch, _assignment(member.target or ())]
        lines.append(line)
    return _table(head, widths, lines, ends_with_space=True)


def state_text(view: GroupView, *, is_verbose: bool = False) -> str:
    node = view.coordinator
    coordinator = None if node is None else f"{node.host}:{node.port}  ({node.broker_id})"
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if is_verbose else []
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS"]
    widths = [_WIDTH, 25, 20, 20, *([_WIDTH, 25] if is_verbose else []), 0]
    numbers = [view.group_epoch, view.assignment_epoch] if is_verbose else []
    line: list[_Cell] = [
        view.group,
        coordinator,
        view.assignor,
        view.state,
        *numbers,
        len(view.members),
    ]
    return _table(head, widths, [line])


def listing_text(listings: Iterable[GroupListing], *, with_type: bool, with_state: bool) -> str:
    """The table of --list --state or --list --type."""
    head = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    lines = [
        [
            listing.group,
            *([(listing.group_type or "Unknown").capitalize()] if with_type else []),
            *([listing.state or "Unknown"] if with_state else []),
        ]
        for listing in listings
    ]
    width = max((len(line[0]) for line in lines), default=0)
    widths = [max(width, _WIDTH) + 10, 20, 20]
    return "".join(
        " ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=False)) + "\n"
        for line in [head, *lines]
    )


def reset_text(moves: Iterable[tuple[str, TopicPartition, int]]) -> str:
    """What --reset-offsets prints: (group, partition, new offset) a line."""
    lines = [(group, key.topic, key.partition, at) for group, key, at in moves]
    return _table(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [_WIDTH, _WIDTH, 10, 0], lines)


def deleted_groups_text(outcomes: Mapping[str, KafkaFailure | None]) -> str:
    """What --delete says of the groups that are gone; errors are said on stderr."""
    gone = ", ".join(f"'{name}'" for name, failure in outcomes.items() if failure is None)
    if not gone:
        return ""
    if any(outcomes.values()):
        return f"\nThese consumer groups were deleted successfully: {gone}\n"
    return f"Deletion of requested consumer groups ({gone}) was successful.\n"


def deleted_offsets_text(statuses: Iterable[tuple[str, int | None, str]]) -> str:
    """The table of --delete-offsets: (topic, partition, status) a line."""
    return _table(["TOPIC", "PARTITION", "STATUS"], [_WIDTH, 10, _WIDTH], statuses)


def _assignment(keys: Sequence[TopicPartition]) -> str | None:
    return (
        ", ".join(
            f"{topic}:{','.join(str(key.partition) for key in found)}"
            for topic, found in groupby(keys, key=lambda key: key.topic)
        )
        or None
    )


def _table(
    head: Sequence[str],
    widths: Sequence[int],
    lines: Iterable[Sequence[_Cell]],
    *,
    ends_with_space: bool = False,
) -> str:
    """A blank line, then the rows; a column is as wide as its widest cell, but at least as given;
    one that is given none is not filled up."""
    cells = [list(head), *([_NONE if cell is None else str(cell) for cell in row] for row in lines)]
    sizes = [
        max(width, *(len(row[i]) for row in cells)) if width else 0
        for i, width in enumerate(widths)
    ]
    end = " " if ends_with_space else ""
    lines_of_text = (
        " ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)) + end
        for row in cells
    )
    return "\n" + "\n".join(lines_of_text) + "\n"
