"""ConsumerGroupHeartbeat (key 68), versions 0-1; ConsumerGroupDescribe (69), 0-1: consumer groups of
KIP-848.

Behaviour: one request says all that a member wants and has, and is answered with what it shall have
(``coordinator/group/heartbeat.py``). A regular expression is compiled in a thread before the
coordinator hears of it.

Per version: ConsumerGroupHeartbeat 1 has regular expressions, and ids that members make themselves.
ConsumerGroupDescribe 1 tells which members speak the classic protocol.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.group.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from broker.model.error_code import ErrorCode
from broker.model.features import GROUP_VERSION
from broker.model.ids import ZERO_TOPIC_ID, TopicId
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.answering import answered
from broker.server.encoding import encoded
from broker.server.handlers.group_admin import ALL_GROUP_OPERATIONS, NOT_ASKED
from broker.server.patterns import fault_of
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

CONSUMER: Final = "consumer"
OWN_IDS_FROM: Final = 1
#: In the answer: the member speaks the classic protocol, or the newer one.
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
MILLISECOND: Final = timedelta(milliseconds=1)


def _is_served(broker: Broker) -> bool:
    """Metadata of the first release finalises nothing, and its groups go on."""
    image = broker.image
    return CONSUMER in broker.config.group_coordinator_rebalance_protocols and (
        image.features_epoch < 0 or GROUP_VERSION in image.features
    )


# --- ConsumerGroupHeartbeat -------------------------------------------------------------------


def handle_heartbeat(
    broker: Broker, context: RequestContext, request: Any
) -> object | Coroutine[Any, Any, object]:
    asked = _heartbeat_request(context, request)
    if not _is_served(broker):
        return _heartbeat_response(context, HeartbeatAnswer(ErrorCode.UNSUPPORTED_VERSION))
    if asked.pattern:
        return _checked(broker, context, asked)
    return _ask(broker, context, asked)


async def _checked(broker: Broker, context: RequestContext, asked: HeartbeatRequest) -> object:
    fault = await broker.threads.computed(partial(fault_of, asked.pattern or ""))
    answer = _ask(broker, context, asked._replace(pattern_fault=fault))
    return await answer if isinstance(answer, Coroutine) else answer


def _ask(
    broker: Broker, context: RequestContext, asked: HeartbeatRequest
) -> object | Coroutine[Any, Any, object]:
    groups = broker.coordination.groups
    return answered(
        broker.loop,
        lambda done: groups.consumer_heartbeat(asked, done),
        partial(_heartbeat_response, context),
    )


def _heartbeat_request(context: RequestContext, request: Any) -> HeartbeatRequest:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // MILLISECOND,
        topics=None if topics is None else frozenset(topics),
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else {each.topic_id or ZERO_TOPIC_ID: each.partitions for each in owned},
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        must_know_member_id=context.api_version >= OWN_IDS_FROM,
    )


def _heartbeat_response(context: RequestContext, answer: HeartbeatAnswer) -> object:
    types = response_types(context.api_key, context.api_version)
    assignment = None
    if answer.assignment is not None:
        assignment = types.Assignment(
            topic_partitions=[
                types.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return types.ConsumerGroupHeartbeatResponse(
        throttle_time=0,
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


# --- ConsumerGroupDescribe --------------------------------------------------------------------


async def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    describe = _Describe(broker, types)
    turn = Turn()
    told = EncodedItems()
    for group_id in request.group_ids:
        group = await describe.ask(group_id)
        is_told = request.include_authorized_operations and group.error is ErrorCode.NONE
        members = (describe.member(member) for member in group.members)
        told.add(
            types.DescribedGroup(
                error_code=group.error,
                error_message=group.message,
                group_id=group_id,
                group_state=group.state,
                group_epoch=group.group_epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=group.assignor,
                members=await encoded(members, turn),
                authorized_operations=ALL_GROUP_OPERATIONS if is_told else NOT_ASKED,
            )
        )
        if turn.is_over:
            await turn.pass_on()
    return types.ConsumerGroupDescribeResponse(throttle_time=0, groups=told)


class _Describe:
    """One request."""

    def __init__(self, broker: Broker, types: Any) -> None:
        self._broker = broker
        self._types = types

    async def ask(self, group_id: str) -> DescribedConsumerGroup:
        if not _is_served(self._broker):
            return DescribedConsumerGroup(group_id, ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            return DescribedConsumerGroup(group_id, ErrorCode.INVALID_GROUP_ID)
        groups = self._broker.coordination.groups
        found: DescribedConsumerGroup = await called_back(groups.describe_consumer, group_id)
        return found

    def member(self, member: DescribedConsumer) -> object:
        return self._types.Member(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.topics,
            subscribed_topic_regex=member.pattern,
            assignment=self._assignment(member.assignment),
            target_assignment=self._assignment(member.target),
            member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        )

    def _assignment(self, assignment: Mapping[TopicId, Sequence[int]]) -> object:
        """Topics that are gone have no name, and are left out."""
        types, topics = self._types, self._broker.image.topics_by_id
        return types.Assignment(
            topic_partitions=[
                types.TopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=partitions
                )
                for topic_id, partitions in assignment.items()
                if topic_id in topics
            ]
        )
