"""FindCoordinator (key 10), versions 0-6.

Behaviour: this broker coordinates every group and every transaction. The first one who asks makes
``__consumer_offsets``, or ``__transaction_state``, and is answered when it is there (Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, clients ask
again). librdkafka takes the presence of this API for the sign that a broker knows LZ4 batches.

Per version: 0 groups only; 1+ a type of key; 4+ several keys (KIP-699); 6+ share groups (KIP-932).

Left out: share groups have no coordinator. They are told COORDINATOR_NOT_AVAILABLE, which clients
understand and retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

#: From here on a request names several keys.
BATCHED_FROM: Final = 4
SHARE_FROM: Final = 6
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
NO_COORDINATOR: Final = "This broker has no coordinator of share groups."


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    code, message = await _find(broker, context, getattr(request, "key_type", GROUP))
    node_id, host, port = -1, "", -1
    if code is ErrorCode.NONE:
        node = broker.nodes(context.connection)[0]
        node_id, host, port = node.broker_id, node.host, node.port
    if context.api_version < BATCHED_FROM:
        return types.FindCoordinatorResponse(
            throttle_time=0,
            error_code=code,
            error_message=message,
            node_id=node_id,
            host=host,
            port=port,
        )
    return types.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            types.Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message="" if code is ErrorCode.NONE else message,
            )
            for key in request.coordinator_keys
        ],
    )


async def _find(broker: Broker, context: RequestContext, key_type: int) -> tuple[ErrorCode, str]:
    if key_type in (GROUP, TRANSACTION):
        host = broker.coordination if key_type == GROUP else broker.transactions
        if await host.ensure_topic():
            return ErrorCode.NONE, "NONE"
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
    if key_type == SHARE and context.api_version >= SHARE_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_COORDINATOR
    return ErrorCode.INVALID_REQUEST, ""
