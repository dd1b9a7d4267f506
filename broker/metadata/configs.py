"""Verdicts on requests that alter settings of topics and brokers.

Pure: image and request in, the change out (or nothing, when all stays as it is), or ``KafkaError``.
What a value may be is ``broker.config``'s matter; here is which resource may be altered, in the
words and the order of Apache Kafka 4.4. Where Kafka gives no answer at all (AlterConfigs naming a
resource twice), the same is told as by IncrementalAlterConfigs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from broker.config.alter import alter_broker, apply_incremental, replace_broker, replace_topic
from broker.config.broker_config import BrokerConfig
from broker.config.definition import ConfigError
from broker.config.group_keys import alter_group, replace_group
from broker.config.topic_config import validate_topic_overrides
from broker.metadata.changes import (
    BrokerConfigsChanged,
    Change,
    GroupConfigsChanged,
    TopicConfigsChanged,
)
from broker.metadata.image import NO_CONFIGS, ClusterImage
from broker.metadata.requests import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigAlteration,
    ConfigReplacement,
)
from broker.metadata.topic_names import why_illegal
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


def named_twice(resources: Sequence[ConfigAlteration | ConfigReplacement]) -> set[tuple[int, str]]:
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    return {resource for resource, count in counts.items() if count > 1}


def judge_alteration(
    image: ClusterImage,
    request: ConfigAlteration,
    broker_ids: Collection[BrokerId],
    broker: BrokerConfig,
) -> Change | None:
    """Single settings are set, deleted, extended (IncrementalAlterConfigs). ``broker_ids``: whose
    settings may be meant."""
    name = request.resource_name
    if request.resource_type == TOPIC_RESOURCE:
        current = _topic_configs(image, name)
        after = apply_incremental(current, request.changes)
        _check_topic_name(name)
        validate_topic_overrides(after, broker)
        return _topic_change(image, name, after)
    if request.resource_type == GROUP_RESOURCE:
        _check_group_name(name)
        current = image.group_configs.get(name, NO_CONFIGS)
        return _group_change(current, name, alter_group(current, request.changes, broker))
    target = _broker_target(request.resource_type, name, broker_ids)
    current = _broker_configs(image, target)
    after = alter_broker(current, request.changes, target is not None, broker)
    return _broker_change(current, target, after)


def judge_replacement(
    image: ClusterImage,
    request: ConfigReplacement,
    broker_ids: Collection[BrokerId],
    broker: BrokerConfig,
) -> Change | None:
    """All settings are given anew (AlterConfigs)."""
    name = request.resource_name
    if request.resource_type == TOPIC_RESOURCE:
        try:
            after = replace_topic(request.configs, broker)
        except ConfigError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                _check_topic_name(name)
            raise
        _check_topic_name(name)
        return _topic_change(image, name, after)
    if request.resource_type == GROUP_RESOURCE:
        _check_group_name(name)
        current = image.group_configs.get(name, NO_CONFIGS)
        return _group_change(current, name, replace_group(request.configs, broker))
    target = _broker_target(request.resource_type, name, broker_ids)
    after = replace_broker(request.configs, target is not None, broker)
    return _broker_change(_broker_configs(image, target), target, after)


def _topic_configs(image: ClusterImage, name: str) -> Mapping[str, str]:
    topic = image.topics.get(name)
    return NO_CONFIGS if topic is None else topic.configs


def _check_topic_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = why_illegal(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _topic_change(image: ClusterImage, name: str, after: Mapping[str, str]) -> Change | None:
    """Values are judged before it is asked whether the topic exists, as in Kafka."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    return None if topic.configs == after else TopicConfigsChanged(name, after)


def _check_group_name(name: str) -> None:
    """A group need not exist: its settings may come first."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _group_change(
    current: Mapping[str, str], group_id: str, after: Mapping[str, str]
) -> Change | None:
    return None if current == after else GroupConfigsChanged(group_id, after)


def _broker_target(
    resource_type: int, name: str, broker_ids: Collection[BrokerId]
) -> BrokerId | None:
    """Whose settings are meant: one broker's, or (None) those of all."""
    if resource_type != BROKER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if not name:
        return None
    if _INTEGER.fullmatch(name) is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        )
    if int(name) not in broker_ids:
        expected = ", ".join(map(str, sorted(broker_ids)))
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected}, but received {name}",
        )
    return BrokerId(int(name))


def _broker_configs(image: ClusterImage, target: BrokerId | None) -> Mapping[str, str]:
    if target is None:
        return image.default_broker_configs
    return image.broker_configs.get(target, NO_CONFIGS)


def _broker_change(
    current: Mapping[str, str], target: BrokerId | None, after: Mapping[str, str]
) -> Change | None:
    return None if current == after else BrokerConfigsChanged(target, after)
