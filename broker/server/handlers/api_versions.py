"""ApiVersions (key 18), versions 0-5.

Behaviour: names exactly what ``protocol.api_versions.SERVED`` holds. From version 3 the client
names its software; an empty or ill-formed name is INVALID_REQUEST, as in Kafka (KIP-511). A request
at an unknown version is answered by the dispatcher in the layout of version 0.

Per version: before 4 clients cannot read a range that begins at 0, so that such features are only told as
finalized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.model.features import SUPPORTED
from broker.protocol.api_versions import advertised, is_valid_client_software
from broker.protocol.schema import response_types

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

SOFTWARE_FROM = 3
ZERO_LEVELS_FROM = 4
#: Of levels that were never finalised by UpdateFeatures. The first release always told 2, and clients never
#: go back to an older epoch.
FIRST_FEATURES_EPOCH = 3


def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    image = broker.image
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
        supported_features=[
            types.SupportedFeatureKey(
                name=name, min_version=levels.min_level, max_version=levels.max_level
            )
            for name, levels in SUPPORTED
            if levels.min_level > 0 or context.api_version >= ZERO_LEVELS_FROM
        ],
        finalized_features_epoch=image.features_epoch + FIRST_FEATURES_EPOCH,
        finalized_features=[
            types.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
        zk_migration_ready=False,
    )
