"""FindCoordinator (key 10), versions 0-6.

Behaviour: there is no group or transaction coordinator yet, so every key is answered with
COORDINATOR_NOT_AVAILABLE, which clients understand and retry. The API is served all the same because
librdkafka takes its presence for the sign that a broker knows LZ4 batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

#: From here on a request names several keys (KIP-699).
BATCHED_FROM: Final = 4
MESSAGE: Final = "This broker has no group or transaction coordinator."


def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.api_version < BATCHED_FROM:
        return types.FindCoordinatorResponse(
            throttle_time=0, error_code=code, error_message=MESSAGE, node_id=-1, host="", port=-1
        )
    return types.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            types.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=MESSAGE
            )
            for key in request.coordinator_keys
        ],
    )
