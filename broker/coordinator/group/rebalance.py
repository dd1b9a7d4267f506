"""How a classic group moves: join, sync, heartbeat, leave, and what happens when time runs out.

The rules are those of Apache Kafka 4.4 (``GroupMetadataManager``), state by state, because clients
know them by heart. Each method looks at one group, changes what lives in memory only, and returns
the records that must be kept. Timers of a group:

* session: one per member, moved on by each of its requests; when it runs out the member is removed,
  unless it waits for us;
* join: while members are asked to join; those that have not when it runs out are removed;
* sync: after the join phase; members that do not fetch their assignment by then are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.member import NO_ASSIGNMENT, Member
from broker.coordinator.group.records import group_record
from broker.coordinator.group.requests import (
    UNKNOWN_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.group.states import GroupState
from broker.coordinator.ports import ShardTimers
from broker.coordinator.result import CoordinatorResult, nothing
from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError

logger = logging.getLogger(__name__)

#: How long the first join of a member without an id may take: it cannot send heartbeats yet, and
#: nobody would notice if it were gone.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000
#: Ids that a group hands out without anybody joining with them. Kafka has no such bound.
MAX_PENDING_MEMBERS: Final = 10_000

_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE

Nothing = CoordinatorResult[None]


class Rebalance:
    """See the module's docstring. ``find`` gives a shard's group by its id."""

    def __init__(
        self,
        find: Callable[[str], ClassicGroup | None],
        timers: ShardTimers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
    ) -> None:
        self._find = find
        self._timers = timers
        self._clock = clock
        self._config = config
        self._new_id = new_id

    # -- join ---------------------------------------------------------------------------------

    def join(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> Nothing:
        member_id = request.member_id
        if not self._may_join(group, member_id):
            group.remove(member_id)
            self._timers.cancel(_session(group.group_id, member_id))
            answer(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return self._complete_if_all_joined(group)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports(request.protocol_type, names):
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return nothing()
        if member_id == UNKNOWN_MEMBER_ID:
            return self._join_as_new(group, request, answer)
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Ids are handed out to dynamic members only.
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add(group, request, member_id, answer)
        return self._join_again(group, request, answer)

    def _may_join(self, group: ClassicGroup, member_id: str) -> bool:
        """``group.max.size``. While members join, those that have count, so that the last ones of
        a group that is too large are turned away."""
        most = self._config().group_max_size
        if group.is_empty:
            return True
        member = group.members.get(member_id)
        if group.state is _PREPARING:
            return (
                member is not None and member.is_awaiting_join
            ) or group.awaiting_join_count < most
        return member is not None or len(group.members) < most

    def _join_as_new(
        self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin
    ) -> Nothing:
        instance_id = request.group_instance_id
        begins_with = request.client_id if instance_id is None else instance_id
        member_id = f"{begins_with}-{self._new_id()}"
        if instance_id is not None:
            known = group.static_member_id(instance_id)
            if known is not None:
                return self._come_back(group, request, known, member_id, answer)
            return self._add(group, request, member_id, answer)
        if not request.must_know_member_id:
            return self._add(group, request, member_id, answer)
        if len(group.pending_join) >= MAX_PENDING_MEMBERS:
            answer(JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return nothing()
        group.pending_join[member_id] = None
        self._set_session(group, member_id, request.session_timeout_ms)
        answer(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return nothing()

    def _join_again(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> Nothing:
        try:
            member = group.member_or_raise(request.member_id, request.group_instance_id)
        except KafkaError as error:
            answer(JoinAnswer(error.code, request.member_id))
            return nothing()
        is_same = member.protocols == request.protocols
        if (group.state is _COMPLETING and is_same) or (
            group.state is _STABLE and is_same and group.leader_id != member.member_id
        ):
            # It may have missed the answer; or nothing that matters has changed.
            answer(self._joined(group, member))
            return nothing()
        if group.is_empty:
            answer(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return nothing()
        self._update(group, member, request)
        group.await_join(member, answer)
        return self._prepare_or_complete(group)

    def _update(self, group: ClassicGroup, member: Member, request: JoinRequest) -> None:
        group.update(
            member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms
        )

    def _add(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, answer: AnswerJoin
    ) -> Nothing:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if group.state is _PREPARING and group.previous_state is GroupState.EMPTY:
            group.has_new_member = True
        group.add(member, request.protocol_type)
        group.await_join(member, answer)
        self._set_session(group, member_id, NEW_MEMBER_TIMEOUT_MS)
        return self._prepare_or_complete(group)

    def _come_back(
        self,
        group: ClassicGroup,
        request: JoinRequest,
        old_id: str,
        new_id: str,
        answer: AnswerJoin,
    ) -> Nothing:
        """A static member joins under its instance id, without knowing its member id."""
        assert request.group_instance_id is not None
        old = group.members[old_id]
        before = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        old_leader_id = group.leader_id
        self._timers.cancel(_session(group.group_id, old_id))
        member = group.replace_static(request.group_instance_id, old_id, new_id)
        self._update(group, member, request)
        group.await_join(member, answer)
        self._set_session(group, new_id, member.session_timeout_ms)
        if group.state is _STABLE:
            if group.choose_protocol() != group.protocol_name:
                return self._prepare_or_complete(group)
            written = partial(
                self._on_came_back, group, member, request, old_id, old_leader_id, before
            )
            return self._store(group, _assignments(group), written)
        if group.state is _COMPLETING:
            # The leader assigns to the old id, so it must be asked anew.
            return self.prepare(group)
        return self._complete_if_all_joined(group)

    def _on_came_back(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinRequest,
        old_id: str,
        old_leader_id: str | None,
        before: tuple[tuple[Protocol, ...], int, int],
        error: ErrorCode,
    ) -> None:
        is_here = group.members.get(member.member_id) is member
        if error is not ErrorCode.NONE:
            answer = JoinAnswer(
                error,
                UNKNOWN_MEMBER_ID,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                old_leader_id or "",
            )
            if is_here:
                group.answer_join(member, answer)
                self._undo_coming_back(group, member, old_id, before)
            return
        if not is_here or group.state is not _STABLE:
            return  # if the group has moved on, the member is answered with all others
        is_leader = group.leader_id == member.member_id
        joined = self._joined(group, member)
        if request.can_skip_assignment:
            joined = joined._replace(must_skip_assignment=is_leader)
        else:
            # It must not take itself for the leader, or it would assign without being asked to.
            joined = joined._replace(leader_id=old_leader_id or "", members=())
        group.answer_join(member, joined)
        member.is_new = False

    def _undo_coming_back(
        self,
        group: ClassicGroup,
        member: Member,
        old_id: str,
        before: tuple[tuple[Protocol, ...], int, int],
    ) -> None:
        assert member.group_instance_id is not None
        group.update(member, *before)
        self._timers.cancel(_session(group.group_id, member.member_id))
        old = group.replace_static(member.group_instance_id, member.member_id, old_id)
        self._set_session(group, old_id, old.session_timeout_ms)

    def _joined(self, group: ClassicGroup, member: Member) -> JoinAnswer:
        is_leader = group.leader_id == member.member_id
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader_id or "",
            members=group.joined_members() if is_leader else (),
        )

    # -- the join phase -----------------------------------------------------------------------

    def _prepare_or_complete(self, group: ClassicGroup) -> Nothing:
        if group.can_rebalance:
            return self.prepare(group)
        return self._complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup) -> Nothing:
        """Ask everybody to join anew."""
        if group.state is _COMPLETING:
            self._propagate_failure(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._timers.cancel(_sync(group.group_id))
        is_first = group.is_empty
        group.move_to(_PREPARING, self._clock.wall_ms())
        if is_first:
            # More members are likely to come: what the first one waits saves all a rebalance.
            delay_ms = self._config().group_initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay_first(group.group_id, delay_ms, left_ms)
            return nothing()
        if group.have_all_joined:
            return self._complete(group)
        self._set_join(group)
        return nothing()

    def _delay_first(self, group_id: str, delay_ms: int, left_ms: int) -> None:
        self._timers.set(
            _join(group_id), delay_ms, partial(self._on_delay_over, group_id, delay_ms, left_ms)
        )

    def _on_delay_over(self, group_id: str, delay_ms: int, left_ms: int) -> Nothing:
        group = self._find(group_id)
        if group is None:
            return nothing()
        if group.has_new_member and left_ms:
            group.has_new_member = False
            again_ms = min(self._config().group_initial_rebalance_delay_ms, left_ms)
            self._delay_first(group_id, again_ms, max(left_ms - delay_ms, 0))
            return nothing()
        return self._complete(group)

    def _set_join(self, group: ClassicGroup) -> None:
        self._timers.set(
            _join(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._on_join_over, group.group_id),
        )

    def _on_join_over(self, group_id: str) -> Nothing:
        group = self._find(group_id)
        return nothing() if group is None else self._complete(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> Nothing:
        """Ends the join phase early, unless it is a group's first one, which has its delay."""
        if (
            group.state is _PREPARING
            and group.previous_state is not GroupState.EMPTY
            and group.have_all_joined
        ):
            return self._complete(group)
        return nothing()

    def _complete(self, group: ClassicGroup) -> Nothing:
        """End the join phase: those who joined are the new generation."""
        self._timers.cancel(_join(group.group_id))
        if group.state is not _PREPARING:
            return nothing()
        for member in group.not_joined():
            if not member.is_static:
                group.remove(member.member_id)
                self._timers.cancel(_session(group.group_id, member.member_id))
        if not group.elect_joined_leader() and group.members:
            # Only static members that are away: wait until they come, or their sessions end.
            self._set_join(group)
            return nothing()
        group.begin_generation(self._clock.wall_ms())
        if group.is_empty:
            logger.debug("group %s is empty, generation %d", group.group_id, group.generation_id)
            return self._store(group, {}, None)
        for member in group.members.values():
            group.answer_join(member, self._joined(group, member))
            self._set_session(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self._timers.set(
            _sync(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._on_sync_over, group.group_id, group.generation_id),
        )
        return nothing()

    # -- sync ---------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, request: SyncRequest, answer: AnswerSync) -> Nothing:
        member = group.member_or_raise(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if not _is_same(request.protocol_type, group.protocol_type) or not _is_same(
            request.protocol_name, group.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is _PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._timers.cancel(_sync(group.group_id))
        if group.state is _STABLE:
            answer(self._synced(group, member))
            return nothing()
        assert group.state is _COMPLETING, group.state
        member.answer_sync = answer
        if member.member_id != group.leader_id:
            return nothing()
        given = dict(request.assignments)
        assignments = {
            member_id: given.get(member_id, NO_ASSIGNMENT) for member_id in group.members
        }
        written = partial(self._on_assigned, group, group.generation_id, assignments)
        return self._store(group, assignments, written)

    def _on_assigned(
        self,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: ErrorCode,
    ) -> Nothing | None:
        """The leader's assignment is in the log, or is not. The group may have moved on."""
        if group.state is not _COMPLETING or group.generation_id != generation_id:
            return None
        if error is not ErrorCode.NONE:
            self._propagate_failure(group, error)
            return self._prepare_or_complete(group)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        group.move_to(_STABLE, self._clock.wall_ms())
        for member in group.members.values():
            self._answer_sync(group, member, self._synced(group, member))
        return None

    def _synced(self, group: ClassicGroup, member: Member) -> SyncAnswer:
        return SyncAnswer(
            ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment
        )

    def _propagate_failure(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
            self._answer_sync(group, member, SyncAnswer(error))

    def _answer_sync(self, group: ClassicGroup, member: Member, answer: SyncAnswer) -> None:
        if group.answer_sync(member, answer):
            # Its session may have run out unnoticed while it waited for us.
            self._set_session(group, member.member_id, member.session_timeout_ms)

    def _on_sync_over(self, group_id: str, generation_id: int) -> Nothing:
        group = self._find(group_id)
        if (
            group is None
            or group.generation_id != generation_id
            or group.state not in (_COMPLETING, _STABLE)
            or not group.pending_sync
        ):
            return nothing()
        for member_id in list(group.pending_sync):
            group.remove(member_id)
            self._timers.cancel(_session(group_id, member_id))
        return self.prepare(group)

    # -- life and death of members ------------------------------------------------------------

    def heartbeat(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        member = group.member_or_raise(member_id, instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self.keep_alive(group, member)
        if group.state is _PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def keep_alive(self, group: ClassicGroup, member: Member) -> None:
        self._set_session(group, member.member_id, member.session_timeout_ms)

    def leave(
        self, group: ClassicGroup, leaving: Sequence[LeavingMember]
    ) -> CoordinatorResult[list[ErrorCode]]:
        """One code for each."""
        codes = [self._leave(group, *each) for each in leaving]
        result = nothing()
        if ErrorCode.NONE in codes:
            if group.state in (_STABLE, _COMPLETING):
                result = self._prepare_or_complete(group)
            elif group.state is _PREPARING:
                result = self._complete_if_all_joined(group)
        return CoordinatorResult(
            codes, result.records, on_written=result.on_written, is_replayed=result.is_replayed
        )

    def _leave(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes a static member.
            known = group.static_member_id(instance_id) if instance_id is not None else None
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._timers.cancel(_session(group.group_id, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.member_or_raise(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self._timers.cancel(_session(group.group_id, member_id))
        self._dismiss(group, group.members[member_id])
        return ErrorCode.NONE

    def _dismiss(self, group: ClassicGroup, member: Member) -> None:
        """Take out a member that may still wait for an answer: it shall join as a new one."""
        group.answer_join(member, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def _set_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._timers.set(
            _session(group.group_id, member_id),
            timeout_ms,
            partial(self._on_session_over, group.group_id, member_id),
        )

    def _on_session_over(self, group_id: str, member_id: str) -> Nothing:
        group = self._find(group_id)
        if group is None:
            return nothing()
        if member_id in group.pending_join:
            group.remove(member_id)
            if group.state is _PREPARING and group.have_all_joined:
                return self._complete(group)
            return nothing()
        member = group.members.get(member_id)
        if member is None or member.may_be_silent:
            return nothing()
        logger.info(
            "group %s: %s has fallen silent and is removed",
            group_id,
            member_id,
            extra=caused_by("groups"),
        )
        self._dismiss(group, member)
        if group.state in (_STABLE, _COMPLETING):
            return self._prepare_or_complete(group)
        if group.state is _PREPARING and group.have_all_joined:
            return self._complete(group)
        return nothing()

    # -- the whole group ----------------------------------------------------------------------

    def on_loaded(self, group: ClassicGroup) -> Nothing:
        """After a restart members get their whole session timeout to be heard of."""
        for member in group.members.values():
            self.keep_alive(group, member)
        if group.can_rebalance and len(group.members) > self._config().group_max_size:
            return self.prepare(group)
        return nothing()

    def release(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Nobody waits any longer."""
        for member in list(group.waiting()):
            group.answer_join(member, JoinAnswer(error, member.member_id))
            group.answer_sync(member, SyncAnswer(error))

    def end(self, group: ClassicGroup, error: ErrorCode) -> None:
        """The group is gone, or its coordinator is."""
        self.release(group, error)
        self._timers.cancel(_join(group.group_id))
        self._timers.cancel(_sync(group.group_id))
        for member_id in (*group.members, *group.pending_join):
            self._timers.cancel(_session(group.group_id, member_id))
        group.move_to(GroupState.DEAD, self._clock.wall_ms())

    def _store(
        self,
        group: ClassicGroup,
        assignments: dict[str, bytes],
        written: Callable[[ErrorCode], Nothing | None] | None,
    ) -> Nothing:
        """The group's record. It says what is so already, or what ``written`` makes so."""
        record = group_record(group.group_id, group.stored(assignments))
        return CoordinatorResult(None, [record], on_written=written, is_replayed=False)


def _assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


def _is_same(asked: str | None, actual: str | None) -> bool:
    """Clients of old do not say which protocol they mean."""
    return asked is None or actual is None or asked == actual


def _session(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def _join(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def _sync(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)
