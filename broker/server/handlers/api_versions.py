"""ApiVersions (key 18), versions 0-5.

Behaviour: names exactly what ``protocol.api_versions.SERVED`` holds. From version 3 the client
names its software; an empty or ill-formed name is INVALID_REQUEST, as in Kafka (KIP-511). A request
at an unknown version is answered by the dispatcher in the layout of version 0.

Left out: features. None is finalised, so clients do not expect what needs one (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.protocol.api_versions import advertised, is_valid_client_software
from broker.protocol.schema import response_types

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

SOFTWARE_FROM = 3


def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    error_code = ErrorCode.NONE
    if context.api_version >= SOFTWARE_FROM:
        name, version = request.client_software_name, request.client_software_version
        if is_valid_client_software(name) and is_valid_client_software(version):
            context.connection.client_software = f"{name} {version}"[:200]
        else:
            error_code = ErrorCode.INVALID_REQUEST
    return types.ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            types.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in (advertised() if error_code == ErrorCode.NONE else ())
        ],
        throttle_time=0,
        supported_features=[],
        finalized_features_epoch=0,
        finalized_features=[],
        zk_migration_ready=False,
    )
