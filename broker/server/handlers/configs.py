"""DescribeConfigs (key 32), versions 1-4; AlterConfigs (33), 0-2; IncrementalAlterConfigs (44), 0-1;
ListConfigResources (74), 0-1.

Resources are topics, consumer groups and brokers (an empty broker name stands for all brokers); any other is
answered with an error of its own, so that one bad resource spoils no other (G24). Verdicts on
changes are the controller's, the same at every door. A change takes effect with the image that the
controller publishes, without a restart, and before the answer.

Left out: broker loggers and client metrics as resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from broker.metadata.image import NO_CONFIGS
from broker.metadata.requests import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AlteredConfig,
    ConfigAlteration,
    ConfigReplacement,
)
from broker.metadata.topic_names import why_illegal
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded, listed
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

NOTHING: Final = EncodedItems(())
#: ListConfigResources: what an empty list of types stands for (and all that version 0 knows).
CLIENT_METRICS_RESOURCE: Final = 16
BROKER_LOGGER_RESOURCE: Final = 8
LISTABLE: Final = (
    TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE,
)  # fmt: skip


async def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    describe = _Describe(broker, types, request)
    # Each once: thousands of times the same topic in a small request would be a huge answer.
    results = (describe.result(resource) for resource in dict.fromkeys(request.resources))
    return types.DescribeConfigsResponse(throttle_time=0, results=await encoded(results, Turn()))


class _Describe:
    """One request. Topics with equal overrides (nearly all of them) share one encoding."""

    def __init__(self, broker: Broker, types: Any, request: Any) -> None:
        self._broker = broker
        self._types = types
        self._with_synonyms = request.include_synonyms
        self._with_documentation = getattr(request, "include_documentation", False)
        self._encoded: dict[object, EncodedItems] = {}

    def result(self, resource: Any) -> object:
        code, message, configs = ErrorCode.NONE, None, NOTHING
        try:
            configs = self._configs(resource)
        except KafkaError as error:
            code, message = error.code, error.message
        return self._types.DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )

    def _configs(self, resource: Any) -> EncodedItems:
        if resource.resource_type == GROUP_RESOURCE:
            entries = _group_entries(self._broker, resource)
            return EncodedItems([self._config(entry) for entry in entries])
        if resource.resource_type != TOPIC_RESOURCE:
            return EncodedItems(
                [self._config(entry) for entry in _broker_entries(self._broker, resource)]
            )
        overrides = _topic_overrides(self._broker, resource.resource_name)
        names = resource.configuration_keys
        key = (tuple(sorted(overrides.items())), None if names is None else tuple(names))
        known = self._encoded.get(key)
        if known is None:
            entries = describe_topic(overrides, self._broker.config, names)
            known = self._encoded[key] = EncodedItems([self._config(entry) for entry in entries])
        return known

    def _config(self, entry: ConfigEntry) -> Any:
        types = self._types
        return types.DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=[
                types.DescribeConfigsSynonym(name=name, value=value, source=source)
                for name, value, source in (entry.synonyms if self._with_synonyms else ())
            ],
            config_type=entry.type,
            documentation=entry.documentation if self._with_documentation else None,
        )


def _topic_overrides(broker: Broker, name: str) -> Mapping[str, str]:
    reason = why_illegal(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    topic = broker.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.configs


def _group_entries(broker: Broker, resource: Any) -> list[ConfigEntry]:
    group_id = resource.resource_name
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    overrides = broker.image.group_configs.get(group_id, NO_CONFIGS)
    return describe_group(overrides, broker.config, resource.configuration_keys)


def _broker_entries(broker: Broker, resource: Any) -> list[ConfigEntry]:
    name, names = resource.resource_name, resource.configuration_keys
    if resource.resource_type != BROKER_RESOURCE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
        )
    if not name:
        return describe_cluster_default(broker.config, names)
    if name == str(broker.config.node_id):
        return describe_broker(broker.config, names)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {broker.config.node_id} or empty string,"
        f" but received {name}",
    )


async def handle_alter(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    replacements = (
        ConfigReplacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    )
    asked = await listed(replacements, Turn())
    alter = partial(broker.controller.alter_configs, is_forwarded=context.is_forwarded)
    results = await called_back(alter, asked, request.validate_only)
    await broker.hosting.reconfigured()
    responses = (_altered(types, result) for result in results)
    return types.AlterConfigsResponse(throttle_time=0, responses=await encoded(responses, Turn()))


async def handle_incremental_alter(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    alterations = (
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    )
    asked = await listed(alterations, Turn())
    alter = partial(broker.controller.incremental_alter_configs, is_forwarded=context.is_forwarded)
    results = await called_back(alter, asked, request.validate_only)
    await broker.hosting.reconfigured()
    responses = (_altered(types, result) for result in results)
    return types.IncrementalAlterConfigsResponse(
        throttle_time=0, responses=await encoded(responses, Turn())
    )


def _altered(types: Any, result: AlteredConfig) -> object:
    return types.AlterConfigsResourceResponse(
        error_code=result.error,
        error_message=result.message,
        resource_type=result.resource_type,
        resource_name=result.resource_name,
    )


async def handle_list_resources(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    wanted = getattr(request, "resource_types", None)
    if wanted is None:
        wanted = (CLIENT_METRICS_RESOURCE,)  # version 0 lists nothing else
    elif not wanted:
        wanted = LISTABLE
    if not set(wanted) <= set(LISTABLE):
        return types.ListConfigResourcesResponse(
            throttle_time=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    found: list[tuple[str, int]] = []
    if TOPIC_RESOURCE in wanted:
        found += [(name, TOPIC_RESOURCE) for name in broker.image.topics]
    if GROUP_RESOURCE in wanted:
        found += [(group_id, GROUP_RESOURCE) for group_id in broker.image.group_configs]
    for resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        if resource_type in wanted:
            found.append((str(broker.config.node_id), resource_type))
    resources = (
        types.ConfigResource(resource_name=name, resource_type=resource_type)
        for name, resource_type in found
    )
    return types.ListConfigResourcesResponse(
        throttle_time=0,
        error_code=ErrorCode.NONE,
        config_resources=await encoded(resources, Turn()),
    )
