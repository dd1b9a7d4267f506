"""FindCoordinator (key 10), versions 0-6.

Behaviour: the leader of the partition that a group's or a transaction's id names coordinates it; a broker by
itself coordinates all. The first one who asks makes
``__consumer_offsets``, or ``__transaction_state``, and is answered when it is there (Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, clients ask
again). librdkafka takes the presence of this API for the sign that a broker knows LZ4 batches.

Per version: 0 groups only; 1+ a type of key; 4+ several keys (KIP-699); 6+ share groups (KIP-932).

Left out: share groups have no coordinator. They are told COORDINATOR_NOT_AVAILABLE, which clients
understand and retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types
from broker.server.context import Node

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

#: From here on a request names several keys.
BATCHED_FROM: Final = 4
SHARE_FROM: Final = 6
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
UNAVAILABLE: Final = "The coordinator is not available."
NOBODY: Final = Node(-1, "", -1, None)
NO_COORDINATOR: Final = "This broker has no coordinator of share groups."


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    key_type = getattr(request, "key_type", GROUP)
    code, message = await _find(broker, context, key_type)
    if context.api_version < BATCHED_FROM:
        found = _coordinator(broker, context, key_type, request.key, code, message)
        return types.FindCoordinatorResponse(
            throttle_time=0,
            error_code=found.code,
            error_message=found.message,
            node_id=found.node.broker_id,
            host=found.node.host,
            port=found.node.port,
        )
    return types.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            types.Coordinator(
                key=key,
                node_id=found.node.broker_id,
                host=found.node.host,
                port=found.node.port,
                error_code=found.code,
                error_message="" if found.code is ErrorCode.NONE else found.message,
            )
            for key in request.coordinator_keys
            for found in (_coordinator(broker, context, key_type, key, code, message),)
        ],
    )


class _Found(NamedTuple):
    code: ErrorCode
    message: str
    node: Node


def _coordinator(
    broker: Broker,
    context: RequestContext,
    key_type: int,
    key: str,
    code: ErrorCode,
    message: str,
) -> _Found:
    """The leader of the partition that the key names; ``code`` if there is none for any key."""
    if code is not ErrorCode.NONE:
        return _Found(code, message, NOBODY)
    nodes = broker.nodes(context.connection)
    if broker.cluster is None:
        return _Found(code, message, nodes[0])
    host = broker.coordination if key_type == GROUP else broker.transactions
    leader_id = host.leader_of(key)
    for node in nodes:
        if node.broker_id == leader_id:
            return _Found(code, message, node)
    return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, UNAVAILABLE, NOBODY)


async def _find(broker: Broker, context: RequestContext, key_type: int) -> tuple[ErrorCode, str]:
    if key_type in (GROUP, TRANSACTION):
        host = broker.coordination if key_type == GROUP else broker.transactions
        if await host.ensure_topic():
            return ErrorCode.NONE, "NONE"
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, UNAVAILABLE
    if key_type == SHARE and context.api_version >= SHARE_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_COORDINATOR
    return ErrorCode.INVALID_REQUEST, ""
