"""Brokers pull images: in order, and never back."""

from __future__ import annotations

from broker.metadata.changes import BrokerGone, BrokerRegistered
from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.image_feed import MAX_STEPS, NOTHING_KNOWN, ImageFeed, ImageFollower
from broker.model.ids import BrokerId


def broker(number: int) -> BrokerImage:
    return BrokerImage(BrokerId(number), 100 + number, ())


def feed(controller_epoch: int = 3, *numbers: int) -> tuple[ImageFeed, ClusterImage]:
    image = ClusterImage(controller_epoch=controller_epoch)
    made = ImageFeed(image)
    for number in numbers:
        image = image.apply([BrokerRegistered(broker(number))])
        made.publish(image)
    return made, image


def test_who_knows_nothing_gets_the_whole_and_then_only_what_changed() -> None:
    made, image = feed(3, 1, 2)
    follower = ImageFollower()
    update = made.update_for(NOTHING_KNOWN)
    assert update is not None
    assert update.image is image
    assert follower.on_update(update)
    assert made.update_for(follower.known) is None
    image = image.apply([BrokerRegistered(broker(3))]).apply([BrokerGone(BrokerId(1))])
    made, image = feed(3, 1, 2, 3)
    update = made.update_for(follower.known)
    assert update is not None
    assert update.image is None
    assert follower.on_update(update)
    assert follower.image.brokers == image.brokers
    assert follower.image.version == image.version


def test_a_controller_that_was_replaced_sets_nobody_back() -> None:
    follower = ImageFollower()
    new, old = feed(4, 1)[0], feed(3, 1, 2, 3)[0]
    update, stale = new.update_for(NOTHING_KNOWN), old.update_for(NOTHING_KNOWN)
    assert update is not None
    assert stale is not None
    assert follower.on_update(update)
    assert not follower.on_update(stale)
    assert set(follower.image.brokers) == {1}


def test_an_update_that_was_overtaken_does_nothing() -> None:
    made, _ = feed(3, 1)
    follower = ImageFollower()
    first = made.update_for(NOTHING_KNOWN)
    assert first is not None
    follower.on_update(first)
    made, image = feed(3, 1, 2)
    late = made.update_for(follower.known)
    assert late is not None
    made, image = feed(3, 1, 2, 3)
    later = made.update_for(follower.known)
    assert later is not None
    assert follower.on_update(later)
    assert not follower.on_update(late)
    assert follower.image.brokers == image.brokers


def test_steps_kept_are_bounded_and_who_is_further_behind_gets_the_whole() -> None:
    made, _ = feed(3, *range(1, MAX_STEPS + 3))
    follower = ImageFollower()
    assert follower.on_update(feed(3, 1)[0].update_for(NOTHING_KNOWN))  # type: ignore[arg-type]
    update = made.update_for(follower.known)
    assert update is not None
    assert update.image is not None
    assert follower.on_update(update)
    assert len(follower.image.brokers) == MAX_STEPS + 2
