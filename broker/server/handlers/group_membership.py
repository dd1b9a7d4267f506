"""JoinGroup (key 11), versions 0-9; SyncGroup (14), 0-5; Heartbeat (12), 0-4; LeaveGroup (13), 0-5.

Behaviour: that of ``coordinator/group/rebalance.py``. JoinGroup is answered when the join phase ends,
SyncGroup when the leader's assignment is in the log. A client that goes away meanwhile cancels
nothing: as in Kafka it stays a member until its session ends.

Per version: JoinGroup 0 has no rebalance timeout of its own, 4+ asks new members to join with the id
that they are told (KIP-394), 5+ static members (KIP-345), 7+ names the protocol type, 9+ lets a static
leader skip its assignment (KIP-814). SyncGroup 5 must name protocol type and protocol. LeaveGroup
names one member before version 3 and tells its error on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.group.requests import (
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types
from broker.server.answering import answered

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

MEMBER_ID_FROM: Final = 4
NULL_PROTOCOL_FROM: Final = 7
SKIP_ASSIGNMENT_FROM: Final = 9
PROTOCOL_NAMED_FROM: Final = 5
LEAVE_BATCHED_FROM: Final = 3
MILLISECOND: Final = timedelta(milliseconds=1)


def handle_join(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    version = context.api_version

    def build(answer: JoinAnswer) -> object:
        name = answer.protocol_name
        return types.JoinGroupResponse(
            throttle_time=0,
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=name or None if version >= NULL_PROTOCOL_FROM else name or "",
            leader=answer.leader_id,
            skip_assignment=answer.must_skip_assignment,
            member_id=answer.member_id,
            members=[
                types.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata,
                )
                for member in answer.members
            ],
        )

    asked = _join_request(context, request)
    groups = broker.coordination.groups
    return answered(broker.loop, lambda done: groups.join(asked, done), build)


def _join_request(context: RequestContext, request: Any) -> JoinRequest:
    session_ms = request.session_timeout // MILLISECOND
    version = context.api_version
    rebalance_ms = request.rebalance_timeout // MILLISECOND if version else session_ms
    protocols = {each.name: Protocol(each.name, each.metadata) for each in request.protocols}
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        protocol_type=request.protocol_type,
        protocols=tuple(protocols.values()),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        must_know_member_id=version >= MEMBER_ID_FROM,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_FROM,
    )


def handle_sync(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)

    def build(answer: SyncAnswer) -> object:
        return types.SyncGroupResponse(
            throttle_time=0,
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )

    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    if context.api_version >= PROTOCOL_NAMED_FROM and None in (protocol_type, protocol_name):
        return build(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    asked = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation_id=request.generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[(each.member_id, each.assignment) for each in request.assignments],
    )
    groups = broker.coordination.groups
    return answered(broker.loop, lambda done: groups.sync(asked, done), build)


def handle_heartbeat(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    groups = broker.coordination.groups

    def build(code: ErrorCode) -> object:
        return types.HeartbeatResponse(throttle_time=0, error_code=code)

    return answered(
        broker.loop,
        lambda done: groups.heartbeat(
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id,
            done,
        ),
        build,
    )


def handle_leave(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    is_batched = context.api_version >= LEAVE_BATCHED_FROM
    if is_batched:
        leaving = [
            LeavingMember(each.member_id, each.group_instance_id) for each in request.members
        ]
    else:
        leaving = [LeavingMember(request.member_id, None)]
    groups = broker.coordination.groups

    def build(told: tuple[ErrorCode, Sequence[ErrorCode]]) -> object:
        error, codes = told
        if not is_batched and error is ErrorCode.NONE:
            error = codes[0]
        return types.LeaveGroupResponse(
            throttle_time=0,
            error_code=error,
            members=[
                types.MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=code,
                )
                for member, code in zip(leaving, codes, strict=False)
            ],
        )

    return answered(
        broker.loop,
        lambda done: groups.leave(request.group_id, leaving, lambda *told: done(told)),
        build,
    )
