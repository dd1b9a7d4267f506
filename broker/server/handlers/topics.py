"""CreateTopics (key 19), versions 2-7; DeleteTopics (20), 1-6; CreatePartitions (37), 0-3.

Verdicts are the controller's. CreateTopics answers once the topics are in the metadata store and
led here; version 5+ tells every config of the new topic with its source (G19), version 7 its id.
DeleteTopics answers once each directory is renamed to ``-delete`` and that is synced, so that a
topic created anew never sees old bytes. CreatePartitions names every topic in its answer (G23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.config.describe import ConfigEntry, describe_created_topic
from broker.metadata.requests import (
    BROKER_DEFAULT,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded, listed
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

CONFIGS_FROM: Final = 5
TOPIC_STATES_FROM: Final = 6
NOTHING: Final = EncodedItems(())


async def handle_create(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    asked = await listed((_new_topic(topic) for topic in request.topics), Turn())
    results = await called_back(broker.controller.create_topics, asked, request.validate_only)
    configs = _CreatedConfigs(broker, types, context.api_version >= CONFIGS_FROM)
    topics = (_created(types, result, configs) for result in results)
    return types.CreateTopicsResponse(throttle_time=0, topics=await encoded(topics, Turn()))


class _CreatedConfigs:
    """The settings of created topics; topics with equal overrides share one encoding."""

    def __init__(self, broker: Broker, types: Any, are_told: bool) -> None:
        self._broker = broker
        self._types = types
        self._are_told = are_told
        self._encoded: dict[tuple[tuple[str, str], ...], EncodedItems] = {}

    def of(self, overrides: Mapping[str, str]) -> EncodedItems:
        if not self._are_told:
            return NOTHING
        key = tuple(sorted(overrides.items()))
        known = self._encoded.get(key)
        if known is None:
            entries = describe_created_topic(overrides, self._broker.config)
            known = self._encoded[key] = EncodedItems([self._entry(entry) for entry in entries])
        return known

    def _entry(self, entry: ConfigEntry) -> Any:
        return self._types.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=[(each.name, each.value) for each in topic.configs],
    )


def _created(types: Any, result: CreatedTopic, configs: _CreatedConfigs) -> object:
    is_success = result.is_success
    return types.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error,
        error_message=result.message,
        topic_config_error_code=0,
        num_partitions=result.partition_count if is_success else BROKER_DEFAULT,
        replication_factor=result.replication_factor if is_success else BROKER_DEFAULT,
        configs=configs.of(result.configs) if is_success else [],
    )


async def handle_delete(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    if context.api_version >= TOPIC_STATES_FROM:
        references = (
            TopicReference(name=topic.name, topic_id=topic.topic_id or ZERO_TOPIC_ID)
            for topic in request.topics
        )
    else:
        references = (TopicReference(name=name) for name in request.topic_names)
    asked = await listed(references, Turn())
    results = await called_back(broker.controller.delete_topics, asked)
    await broker.deletions_done()
    responses = (
        types.DeletableTopicResult(
            name=result.name,
            topic_id=result.topic_id,
            error_code=result.error,
            error_message=result.message,
        )
        for result in results
    )
    return types.DeleteTopicsResponse(throttle_time=0, responses=await encoded(responses, Turn()))


async def handle_create_partitions(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    requests = (
        MorePartitions(
            name=topic.name,
            partition_count=topic.count,
            assignments=None
            if topic.assignments is None
            else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
    )
    asked = await listed(requests, Turn())
    results = await called_back(broker.controller.create_partitions, asked, request.validate_only)
    told = (
        types.CreatePartitionsTopicResult(
            name=result.name,
            error_code=result.error if not result.is_success else ErrorCode.NONE,
            error_message=result.message,
        )
        for result in results
    )
    return types.CreatePartitionsResponse(throttle_time=0, results=await encoded(told, Turn()))
