"""Which levels of features count, and who may take part where they do."""

from __future__ import annotations

import uuid

import pytest

from broker.metadata.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    first_levels,
    judge_updates,
)
from broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from broker.metadata.requests import FeatureUpdate
from broker.metadata.znodes import FEATURES, decode_features, encode_features
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.features import SUPPORTED, LevelRange, SupportedFeature, why_unsupported
from broker.model.ids import BrokerId
from tests.broker.metadata.test_membership import ClusterWorld, Member
from tests.support.memory_files import MemoryDirectory
from tests.support.metadata import Cluster

NEWEST = {"group.version": 1, "transaction.version": 2}
OLDER = (
    SupportedFeature("group.version", LevelRange(0, 1)),
    SupportedFeature("transaction.version", LevelRange(0, 1)),
)


def broker(number: int, features: tuple[SupportedFeature, ...] = SUPPORTED) -> BrokerImage:
    return BrokerImage(BrokerId(number), number, (), None, features)


def image(*brokers: BrokerImage, **levels: int) -> ClusterImage:
    return ClusterImage(
        brokers={each.broker_id: each for each in brokers},
        features={name.replace("_", "."): level for name, level in levels.items()},
        features_epoch=5,
    )


def judged(found: ClusterImage, name: str, level: int, kind: int = UPGRADE) -> object:
    """The levels after it, or why not."""
    update = FeatureUpdate(name, level, kind)
    try:
        change = judge_updates(found, [update], BrokerId(1), SUPPORTED)
    except KafkaError as error:
        prefix = f"Invalid update version {level} for feature {name}. "
        return error.code, error.message.removeprefix(prefix)
    if change is None:
        return found.features
    assert change.epoch == found.features_epoch + 1
    return change.levels


def refused(why: str) -> object:
    return ErrorCode.INVALID_UPDATE_VERSION, why


def test_the_first_levels_are_those_that_all_support() -> None:
    nothing = ClusterImage()
    assert first_levels(nothing, []) is None
    assert first_levels(image(), [broker(1)]) is None
    for brokers, levels in (
        ([broker(1)], NEWEST),
        ([broker(1), broker(2, OLDER)], {"group.version": 1, "transaction.version": 1}),
        ([broker(1), broker(2, ())], {}),
    ):
        found = first_levels(nothing, brokers)
        assert found is not None
        assert (found.levels, found.epoch) == (levels, 0)


def test_nothing_is_finalised_while_somebody_is_away_who_may_be_older() -> None:
    replicas = (BrokerId(1), BrokerId(3))
    partition = PartitionImage(0, replicas[0], 0, 0, replicas, frozenset(replicas))
    topic = TopicImage("t", uuid.UUID(int=1), (partition,))
    found = ClusterImage(topics={"t": topic})
    assert first_levels(found, [broker(1), broker(2)]) is None
    change = first_levels(found, [broker(1), broker(2), broker(3)])
    assert change is not None
    assert change.levels == NEWEST


@pytest.mark.parametrize(
    ("name", "level", "kind", "outcome"),
    [
        ("transaction.version", 2, UPGRADE, {"transaction.version": 2}),
        ("transaction.version", 1, UPGRADE, {"transaction.version": 1}),
        ("transaction.version", 0, SAFE_DOWNGRADE, {}),
        ("transaction.version", 0, UNSAFE_DOWNGRADE, {}),
        (
            "group.version", 1, UPGRADE, {"group.version": 1, "transaction.version": 1},
        ),
        (
            "transaction.version", 0, UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade.",
        ),
        ("transaction.version", 2, SAFE_DOWNGRADE, "Can't downgrade to a newer version."),
        ("transaction.version", 2, 0, "The controller does not support the given upgrade type."),
        ("transaction.version", -1, UPGRADE, "A feature version cannot be less than 0."),
        ("transaction.version", 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        ("metadata.version", 30, UPGRADE, "Local controller 1 does not support this feature."),
    ],
)  # fmt: skip
def test_updates_are_judged_as_kafkas_controller_does(
    name: str, level: int, kind: int, outcome: object
) -> None:
    expected = refused(outcome) if isinstance(outcome, str) else outcome
    assert judged(image(broker(1), transaction_version=1), name, level, kind) == expected


def test_nothing_is_finalised_that_a_registered_broker_cannot() -> None:
    older = image(broker(1), broker(2, OLDER), broker(3, ()))
    assert judged(older, "transaction.version", 2) == refused("Broker 2 only supports versions 0-1")
    assert judged(older, "transaction.version", 1) == refused(
        "Broker 3 does not support this feature."
    )


def test_of_several_updates_all_or_none_take_effect() -> None:
    found = image(broker(1))
    asked = [FeatureUpdate("group.version", 1, UPGRADE), FeatureUpdate("x.version", 1, UPGRADE)]
    with pytest.raises(KafkaError, match=r"x\.version"):
        judge_updates(found, asked, BrokerId(1), SUPPORTED)
    change = judge_updates(
        found,
        [
            FeatureUpdate("group.version", 1, UPGRADE),
            FeatureUpdate("transaction.version", 2, UPGRADE),
        ],
        BrokerId(1),
        SUPPORTED,
    )
    assert change is not None
    assert change.levels == NEWEST


def test_a_process_says_what_it_cannot() -> None:
    assert why_unsupported(NEWEST) is None
    assert why_unsupported({"transaction.version": 3}) == (
        "transaction.version is finalised at level 3, and this version supports 0-2"
    )
    assert why_unsupported({"x.version": 1}) is not None


def test_what_kafka_finalised_of_its_own_means_nothing_here() -> None:
    data = b'{"version":2,"status":1,"features":{"metadata.version":30,"group.version":1}}'
    assert decode_features(data) == ({"group.version": 1}, 0)
    assert decode_features(encode_features(NEWEST, 7)) == (NEWEST, 7)


# --- One node ---------------------------------------------------------------------------------


def test_one_node_finalises_what_it_can_and_keeps_what_it_was_told() -> None:
    disk = MemoryDirectory()
    cluster = Cluster(disk)
    cluster.start()
    assert (cluster.image.features, cluster.image.features_epoch) == (NEWEST, 0)
    update = [FeatureUpdate("transaction.version", 0, SAFE_DOWNGRADE)]
    assert cluster.ask(cluster.controller.update_features, update, True).is_success
    assert cluster.image.features == NEWEST
    assert cluster.ask(cluster.controller.update_features, update, False).is_success
    cluster.stop()
    cluster = Cluster(disk)
    cluster.start()
    assert (cluster.image.features, cluster.image.features_epoch) == ({"group.version": 1}, 1)


# --- A cluster --------------------------------------------------------------------------------


def update(world: ClusterWorld, member: Member, name: str, level: int, kind: int) -> ErrorCode:
    results = []
    member.term.controller.update_features(
        [FeatureUpdate(name, level, kind)], False, results.append
    )
    world.turns.run()
    return results[0].error


def test_an_older_broker_takes_part_only_while_it_supports_what_counts() -> None:
    world = ClusterWorld()
    one = Member(world, 1).start()
    assert one.image.features == NEWEST
    older = Member(world, 2, features=OLDER).start()
    assert older.broker_id not in one.image.brokers
    assert update(world, one, "transaction.version", 1, SAFE_DOWNGRADE) is ErrorCode.NONE
    assert older.broker_id in one.image.brokers
    code = update(world, one, "transaction.version", 2, UPGRADE)
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    older.stop()
    assert update(world, one, "transaction.version", 2, UPGRADE) is ErrorCode.NONE
    assert one.image.features == NEWEST


def test_a_cluster_from_before_features_finalises_what_all_have() -> None:
    world = ClusterWorld()
    first = Member(world, 1, features=()).start()
    Member(world, 2).start()
    assert world.server.tree.get(FEATURES) is not None
    assert first.image.features == {}


def test_the_next_controller_finds_the_levels() -> None:
    world = ClusterWorld()
    one = Member(world, 1).start()
    two = Member(world, 2).start()
    assert update(world, one, "group.version", 0, SAFE_DOWNGRADE) is ErrorCode.NONE
    one.stop()
    assert two.image.features == {"transaction.version": 2}
    assert two.image.features_epoch == 1
