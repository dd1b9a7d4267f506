"""SaslHandshake (key 17), versions 0-1.

Behaviour: this broker's listeners ask for no authentication. The answer says so in the way that
Kafka does on a plain listener: ILLEGAL_SASL_STATE, and no mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext


def handle_handshake(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    return types.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
