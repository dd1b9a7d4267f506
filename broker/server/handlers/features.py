"""UpdateFeatures (key 57), versions 0-2 (KIP-584, KIP-778).

Behaviour: the controller finalises all levels or none (``metadata/features.py``); what is refused names
the first fault. Levels are described by ApiVersions.

Per version: 0 says "allow downgrade" where 1 and later name the kind of change, and cannot ask for a
validation alone. Before 2 the answer has a result for each feature too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.metadata.requests import FeatureUpdate, UpdatedFeatures
from broker.model.error_code import ErrorCode
from broker.protocol.schema import response_types
from broker.server.tasks import called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

UPGRADE_TYPES_FROM = 1
NO_RESULTS_FROM = 2
UPGRADE = 1


async def handle_update(broker: Broker, context: RequestContext, request: Any) -> object:
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, getattr(each, "upgrade_type", UPGRADE))
        for each in request.feature_updates
    ]
    validate_only = getattr(request, "validate_only", False)
    update = partial(broker.controller.update_features, updates, validate_only)
    result: UpdatedFeatures = await called_back(update)
    message = result.message
    if result.error is ErrorCode.INVALID_UPDATE_VERSION:
        message = (
            "The update failed for all features since the following feature had an error: "
            f"{message}"
        )
    types = response_types(context.api_key, context.api_version)
    more = {}
    if context.api_version < NO_RESULTS_FROM:
        more["results"] = [
            types.UpdatableFeatureResult(
                feature=each.name,
                error_code=ErrorCode.NONE,
                error_message="NONE",  # Kafka's text
            )
            for each in updates
            if result.is_success
        ]
    return types.UpdateFeaturesResponse(
        throttle_time=0, error_code=result.error, error_message=message, **more
    )
