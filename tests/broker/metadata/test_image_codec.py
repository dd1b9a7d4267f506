"""What goes over the wire from a controller to a broker comes out as it went in."""

from __future__ import annotations

import json
import uuid

import pytest

from broker.metadata.changes import (
    BrokerConfigsChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ControllerElected,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from broker.metadata.image_codec import decode_update, encode_update
from broker.metadata.image_feed import NOTHING_KNOWN, ImageFeed, ImageFollower, ImageVersion
from broker.model.features import SUPPORTED
from broker.model.ids import NO_BROKER, BrokerId

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def partition(index: int, leader: BrokerId = ONE, epoch: int = 0) -> PartitionImage:
    return PartitionImage(index, leader, epoch, epoch, (ONE, TWO), frozenset({ONE, TWO}))


def topic(name: str, count: int, **configs: str) -> TopicImage:
    partitions = tuple(partition(index) for index in range(count))
    return TopicImage(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), partitions, configs)


ENDPOINTS = (Endpoint("CLIENT", "::1", 9092, "SASL_SSL"), Endpoint("REPL", "b", 9093, "PLAINTEXT"))
ORDERS = topic("orders", 2, **{"retention.ms": "1000"})

#: Each fits on the image that the ones before it made.
STORY: list[Change] = [
    ControllerElected(TWO, 3),
    FeaturesChanged({"transaction.version": 2}, 0),
    BrokerRegistered(BrokerImage(ONE, 77, ENDPOINTS, "rack a", SUPPORTED)),
    BrokerRegistered(BrokerImage(TWO, 78, ())),
    TopicCreated(ORDERS),
    TopicCreated(topic("plain", 1)),
    PartitionsAdded("orders", (partition(2),)),
    PartitionsChanged(
        "orders",
        (
            PartitionImage(
                1, NO_BROKER, 4, 5, (ONE, TWO, THREE), frozenset({TWO}), (THREE,), (ONE,)
            ),
        ),
    ),
    TopicConfigsChanged("plain", {"cleanup.policy": "compact"}),
    TopicConfigsChanged("orders", {}),
    BrokerConfigsChanged(None, {"log.retention.ms": "5"}),
    BrokerConfigsChanged(ONE, {"log.retention.ms": "6"}),
    ProducerIdsAllocated(1000),
    FeaturesChanged({}, 1),
    GroupConfigsChanged("a/b", {"consumer.session.timeout.ms": "50000"}),
    GroupConfigsChanged("c", {"consumer.session.timeout.ms": "50000"}),
    GroupConfigsChanged("c", {}),
    BrokerGone(ONE),
    TopicDeleted(topic("plain", 1)),
]


@pytest.mark.parametrize("known_count", range(len(STORY)))
def test_a_follower_comes_to_the_controllers_image_by_whatever_way(known_count: int) -> None:
    image = ClusterImage(cluster_id="abc", controller_epoch=3)
    feed = ImageFeed(image)
    follower = ImageFollower()
    for number, change in enumerate(STORY):
        if number == known_count:
            update = feed.update_for(NOTHING_KNOWN)
            assert update is not None
            assert update.image is not None
            assert follower.on_update(decode_update(encode_update(update)))
        image = image.apply([change])
        feed.publish(image)
    update = feed.update_for(follower.known)
    assert update is not None
    assert update.image is None
    assert follower.on_update(decode_update(encode_update(update)))
    for name in ClusterImage.__slots__:
        assert name == "changes" or getattr(follower.image, name) == getattr(image, name), name


def test_older_brokers_read_what_they_know() -> None:
    """A kind that came later stands apart; what is later still is passed over."""
    image = ClusterImage(controller_epoch=3, brokers={ONE: BrokerImage(ONE, 77, ())})
    feed = ImageFeed(image)
    feed.publish(image.apply([BrokerGone(ONE), FeaturesChanged({}, 4)]))
    update = feed.update_for(ImageVersion(3, 0))
    assert update is not None
    value = json.loads(encode_update(update))
    assert value["steps"] == [[["gone", 1]]]
    assert value["later"] == [[["features", {}, 4]]]
    value["later"][0].append(["of the future", 1, 2])
    found = decode_update(json.dumps(value).encode())
    assert found.steps == [(BrokerGone(ONE), FeaturesChanged({}, 4))]
    del value["later"]  # from an older controller
    assert decode_update(json.dumps(value).encode()).steps == [(BrokerGone(ONE),)]


def test_the_last_step_tells_what_changed() -> None:
    feed = ImageFeed(ClusterImage(controller_epoch=3))
    follower = ImageFollower()
    update = feed.update_for(NOTHING_KNOWN)
    assert update is not None
    follower.on_update(decode_update(encode_update(update)))
    feed.publish(ClusterImage(controller_epoch=3).apply([TopicCreated(ORDERS)]))
    update = feed.update_for(follower.known)
    assert update is not None
    follower.on_update(decode_update(encode_update(update)))
    assert follower.image.changes == (TopicCreated(ORDERS),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"epoch":1,"version":2}',
        b'{"epoch":1,"version":2,"image":{}}',
        b'{"epoch":1,"version":2,"base":1,"steps":[[["unheard of",1]]]}',
        b'{"epoch":1,"version":2,"base":1,"steps":[[["gone"]]]}',
        b"\xff",
    ],
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_update(data)
