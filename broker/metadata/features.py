"""Verdicts on finalised features (KIP-584): pure, in the words of Apache Kafka 4.4.

A level counts only while every registered broker supports it. So the first levels are the highest that all
of those support who are there when the cluster's metadata has none, once all are there that have replicas: who is
away may be of an earlier release; UpdateFeatures is checked against the
registered brokers; and a broker that registers later takes part if it supports what is finalised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from broker.metadata.changes import FeaturesChanged
from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.requests import FeatureUpdate
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.features import LevelRange, SupportedFeature
from broker.model.ids import BrokerId

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3
UPGRADE_TYPES = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)

UNKNOWN_FEATURE = LevelRange(0, 0)


def first_levels(image: ClusterImage, brokers: Collection[BrokerImage]) -> FeaturesChanged | None:
    """For metadata that has none yet."""
    if image.features_epoch >= 0:
        return None
    if not _holders(image) <= {broker.broker_id for broker in brokers}:
        return None  # another time
    highest: dict[str, int] | None = None
    for broker in brokers:
        own = {name: levels.max_level for name, levels in broker.features}
        if highest is None:
            highest = own
        highest = {name: min(level, own.get(name, 0)) for name, level in highest.items()}
    if highest is None:
        return None
    return FeaturesChanged({name: level for name, level in highest.items() if level > 0}, 0)


def _holders(image: ClusterImage) -> set[BrokerId]:
    """Who has a replica."""
    return {
        replica
        for topic in image.topics.values()
        for partition in topic.partitions
        for replica in partition.replicas
    }


def supports(broker: BrokerImage, image: ClusterImage) -> bool:
    """Whether the broker may take part."""
    known = dict(broker.features)
    return all(
        known.get(name, UNKNOWN_FEATURE).has(level) for name, level in image.features.items()
    )


def judge_updates(
    image: ClusterImage,
    updates: Sequence[FeatureUpdate],
    controller_id: BrokerId,
    supported: Sequence[SupportedFeature],
) -> FeaturesChanged | None:
    """All of them or none; None when nothing changes. Raises ``KafkaError`` with the first that is
    refused."""
    local = dict(supported)
    after = dict(image.features)
    for update in {each.name: each for each in updates}.values():  # the last of a name counts
        why_not = _why_not(image, update, controller_id, local)
        if why_not is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {why_not}",
            )
        after[update.name] = update.level
    after = {name: level for name, level in after.items() if level > 0}
    if after == image.features:
        return None
    return FeaturesChanged(after, image.features_epoch + 1)


def _why_not(
    image: ClusterImage,
    update: FeatureUpdate,
    controller_id: BrokerId,
    local: Mapping[str, LevelRange],
) -> str | None:
    name, level, kind = update
    if kind not in UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    reason = _unsupported(f"Local controller {controller_id}", name, level, local)
    for broker_id, broker in sorted(image.brokers.items()):
        known = dict(broker.features)
        reason = reason or _unsupported(f"Broker {broker_id}", name, level, known)
    if reason is not None:
        return reason
    if name not in local:
        return f"Feature {name} not found."
    now = image.features.get(name, 0)
    if level < now and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if level > now and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(who: str, name: str, level: int, known: Mapping[str, LevelRange]) -> str | None:
    levels = known.get(name, UNKNOWN_FEATURE)
    if levels.has(level):
        return None
    if levels.max_level == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {levels}"
