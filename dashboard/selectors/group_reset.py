"""What a reset of a group's offsets would do, for each partition: looked up, checked, nothing done.

The plan that was shown travels signed through the browser, so that what is carried out is what was
seen; ``services.groups`` compares it with the cluster once more before it does anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from django.core import signing

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.groups import GroupView, MemberView
from dashboard.reset_logs import look_up_logs
from dashboard.resetting import Kind, LogAt, Move, Target, plan_group

PLAN_SALT: Final = "dashboard.group-reset"
PLAN_FOR_S: Final = 15 * 60
MAX_MEMBERS_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """``topic`` None: all that the group has committed for; ``partitions`` None: all of the topic.
    ``source``: the group to copy from, for a target of the kind GIVEN."""

    group: str
    target: Target
    topic: str | None = None
    partitions: frozenset[int] | None = None
    source: str | None = None


class ResetMove(NamedTuple):
    """``replayed`` and ``skipped``: records (offsets) that will be read again, or never."""

    key: TopicPartition
    prior: int | None
    new: int
    log_start_offset: int
    log_end_offset: int

    @property
    def replayed(self) -> int:
        """Only what is still in the log can be read again."""
        return 0 if self.prior is None else max(0, min(self.prior, self.log_end_offset) - self.new)

    @property
    def skipped(self) -> int:
        if self.prior is None:
            return 0
        return max(0, self.new - max(self.prior, self.log_start_offset))

    @property
    def lag(self) -> int:
        """To be read afterwards."""
        return self.log_end_offset - self.new


@dataclass(slots=True)
class ResetPlan:
    """``members`` not empty, or ``errors``: it cannot be done."""

    group: str
    moves: list[ResetMove] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    member_count: int = 0
    is_new_group: bool = False

    @property
    def is_possible(self) -> bool:
        return bool(self.moves) and not self.errors and not self.member_count

    @property
    def replayed(self) -> int:
        return sum(move.replayed for move in self.moves)

    @property
    def skipped(self) -> int:
        return sum(move.skipped for move in self.moves)

    @property
    def moved_count(self) -> int:
        return sum(move.new != move.prior for move in self.moves)

    def signed(self) -> str:
        """For the form that carries it out."""
        moves = [[*move.key, move.prior, move.new] for move in self.moves]
        return signing.dumps([self.group, moves], salt=PLAN_SALT, compress=True)


class PlannedMove(NamedTuple):
    prior: int | None
    new: int


def planned(text: str) -> tuple[str, dict[TopicPartition, PlannedMove]]:
    """The group and moves of a signed plan. Raises ValueError with words for the page."""
    try:
        group, moves = signing.loads(text, salt=PLAN_SALT, max_age=PLAN_FOR_S)
    except signing.SignatureExpired:
        raise ValueError("The preview is older than 15 minutes: look at it again.") from None
    except signing.BadSignature:
        raise ValueError("The preview does not come from here: make it again.") from None
    return group, {
        TopicPartition(topic, partition): PlannedMove(prior, new)
        for topic, partition, prior, new in moves
    }


def plan_reset(gateway: Gateway, request: ResetRequest) -> ResetPlan:
    """Raises KafkaFailure when the cluster does not answer."""
    plan = ResetPlan(request.group)
    note_members(gateway, plan)
    committed = _committed(gateway, request.group, plan)
    given: Mapping[TopicPartition, int] = {}
    if request.source is not None:
        given = _committed(gateway, request.source, plan)
        if not given:
            plan.errors.append(f"{request.source} has committed nothing that could be copied.")
    keys = _keys(gateway, request, committed, given, plan)
    logs = _logs(gateway, keys, request.target, plan)
    found = plan_group(request.group, request.target, logs, committed, given)
    plan.moves = [_reset_move(move, logs[move.key]) for move in found.moves]
    # The command line's hint after the semicolon is of no use here.
    plan.remarks += [remark.partition(";")[0] for remark in found.remarks]
    if found.unshiftable:
        names = ", ".join(map(str, found.unshiftable[:10]))
        plan.errors.append(f"Nothing is committed for {names}: there is nothing to shift.")
    if not keys and not plan.errors:
        plan.errors.append(
            "The group has committed nothing that this would move. Name a topic to begin with it."
        )
    return plan


def note_members(gateway: Gateway, plan: ResetPlan) -> None:
    """Who would have to stop first."""
    view = gateway.groups.describe([plan.group])[plan.group]
    if isinstance(view, KafkaFailure):
        plan.is_new_group = view.code == "GROUP_ID_NOT_FOUND"
        if not plan.is_new_group:
            plan.errors.append(f"The group's coordinator says: {view.message}")
    elif not view.is_vacant:
        plan.members = member_names(view)
        plan.member_count = max(1, len(view.members))


def member_names(view: GroupView) -> list[str]:
    """For people: client id, where it runs, and its own name if it has one."""
    return [_member_name(member) for member in view.members[:MAX_MEMBERS_NAMED]]


def _member_name(member: MemberView) -> str:
    own = f" ({member.instance_id})" if member.instance_id else ""
    return f"{member.client_id}{own} on {member.host.removeprefix('/')}"


def _committed(gateway: Gateway, group: str, plan: ResetPlan) -> dict[TopicPartition, int]:
    found = gateway.groups.committed([group])[group]
    if isinstance(found, KafkaFailure):
        plan.errors.append(f"The offsets of {group} are not told: {found.message}")
        return {}
    return {key: at.offset for key, at in found.items()}


def _keys(
    gateway: Gateway,
    request: ResetRequest,
    committed: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int],
    plan: ResetPlan,
) -> list[TopicPartition]:
    """The partitions meant."""
    meant = list(given if request.target.kind is Kind.GIVEN else committed)
    if request.topic is None:
        return sorted(meant)
    view = gateway.topics([request.topic])[request.topic]
    if not isinstance(view, TopicView):
        plan.errors.append(f"Topic {request.topic}: {view.message}")
        return []
    existing = set(view.keys)
    wanted = existing
    if request.partitions is not None:
        wanted = {TopicPartition(request.topic, index) for index in request.partitions}
        missing = sorted(wanted - existing)
        if missing:
            names = ", ".join(map(str, missing[:10]))
            plan.errors.append(f"There is no {names}: the topic has {len(existing)} partitions.")
    if request.target.kind is Kind.GIVEN:
        wanted &= set(given)
    elif request.target.kind is Kind.SHIFT and request.partitions is None:
        wanted &= set(committed)
    return sorted(wanted & existing)


def _logs(
    gateway: Gateway, keys: Sequence[TopicPartition], target: Target, plan: ResetPlan
) -> dict[TopicPartition, LogAt]:
    if not keys:
        return {}
    logs = {}
    for key, found in look_up_logs(gateway, keys, target).items():
        if isinstance(found, KafkaFailure):
            plan.errors.append(f"{key}: {found.message}")
        else:
            logs[key] = found
    return logs


def _reset_move(move: Move, log: LogAt) -> ResetMove:
    return ResetMove(move.key, move.prior, move.new, log.start, log.end)
