"""ListGroups (key 16), versions 0-5; DescribeGroups (15), 0-6; DeleteGroups (42), 0-3.

Behaviour: answers about many groups are built in turns of the loop, a group at a time. A list while any
part of the groups is being loaded is COORDINATOR_LOAD_IN_PROGRESS: one that is not whole would look as if
the rest were gone. A group that does not exist is described as Dead; only empty groups are deleted.

Per version: ListGroups 4+ filters by state, 5+ by type ("classic" or "consumer"); DescribeGroups 6 has
an error for groups that do not exist; DeleteGroups 3 has a message, which we never need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.group.requests import DescribedGroup
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

MISSING_GROUPS_FROM: Final = 6
NOT_ASKED: Final = -(1 << 31)
#: Read, delete, describe, describe configs, alter configs: without ACLs everybody may.
ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle_list(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    states = {text.strip().lower() for text in getattr(request, "states_filter", ())}
    kinds = {text.strip().lower() for text in getattr(request, "types_filter", ())}
    groups = broker.coordination.groups
    try:
        known = groups.group_ids()
    except KafkaError as error:
        return types.ListGroupsResponse(throttle_time=0, error_code=error.code, groups=[])
    turn = Turn()
    told = EncodedItems()
    for index, group_id in known:
        listed = groups.listed(index, group_id)
        if (
            listed is not None
            and (not states or listed.state.lower() in states)
            and (not kinds or listed.group_type in kinds)
        ):
            told.add(
                types.ListedGroup(
                    group_id=listed.group_id,
                    protocol_type=listed.protocol_type,
                    group_state=listed.state,
                    group_type=listed.group_type,
                )
            )
        if turn.is_over:
            await turn.pass_on()
    return types.ListGroupsResponse(throttle_time=0, error_code=ErrorCode.NONE, groups=told)


async def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    with_operations = getattr(request, "include_authorized_operations", False)
    turn = Turn()
    told = EncodedItems()
    for group_id in request.groups:
        group: DescribedGroup = await called_back(broker.coordination.groups.describe, group_id)
        if (
            group.error is ErrorCode.GROUP_ID_NOT_FOUND
            and context.api_version < MISSING_GROUPS_FROM
        ):
            group = group._replace(error=ErrorCode.NONE)
        is_told = with_operations and group.error is ErrorCode.NONE
        members = (
            types.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        )
        told.add(
            types.DescribedGroup(
                error_code=group.error,
                error_message=group.message,
                group_id=group_id,
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol_name,
                members=await encoded(members, turn),
                authorized_operations=ALL_GROUP_OPERATIONS if is_told else NOT_ASKED,
            )
        )
        if turn.is_over:
            await turn.pass_on()
    return types.DescribeGroupsResponse(throttle_time=0, groups=told)


async def handle_delete(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    turn = Turn()
    told = EncodedItems()
    for group_id in dict.fromkeys(request.groups_names):
        code: ErrorCode = await called_back(broker.coordination.groups.delete, group_id)
        told.add(types.DeletableGroupResult(group_id=group_id, error_code=code, error_message=None))
        if turn.is_over:
            await turn.pass_on()
    return types.DeleteGroupsResponse(throttle_time=0, results=told)
