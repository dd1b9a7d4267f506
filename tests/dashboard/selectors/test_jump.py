"""Where a name leads, from a snapshot made by hand."""

from typing import Any

import pytest

from dashboard.models import Role, User
from dashboard.selectors.jump import PER_KIND, Place, places
from dashboard.services.favourites import MOST, set_favourite
from dashboard.snapshots import BrokerState, ClusterSnapshot, GroupState, PartitionState, TopicState

NAVIGATION: list[dict[str, Any]] = [
    {"label": "Overview", "url": "/"},
    {"label": "Topics", "url": "/topics/"},
]
ADMIN = User(username="ada", role=Role.ADMIN)


def snapshot(topics: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> ClusterSnapshot:
    partition = PartitionState(0, 1, 0, (1,), (1,))
    return ClusterSnapshot(
        1,
        "c",
        1,
        {7: BrokerState(7, "kafka.example", 9092, None, True, 1, 1)},
        {name: TopicState(name, None, False, (partition,)) for name in topics},
        {name: GroupState(name, "Stable", "classic", 1, None, 1, (), (), 0) for name in groups},
    )


def names(found: list[Place]) -> list[tuple[str, str]]:
    return [(place.kind, place.name) for place in found]


def test_every_kind_is_found_by_a_part_of_its_name() -> None:
    found = snapshot(("shop.Orders", "orders", "other"), ("orders & co",))

    assert names(places(ADMIN, NAVIGATION, found, " ORDERS ")) == [
        ("Topic", "orders"),
        ("Topic", "shop.Orders"),
        ("Group", "orders & co"),
    ]
    assert names(places(ADMIN, NAVIGATION, found, "7 example")) == [
        ("Broker", "Broker 7 kafka.example:9092")
    ]
    assert places(ADMIN, NAVIGATION, found, "topics") == [Place("Page", "Topics", "/topics/")]


def test_a_group_of_any_name_is_led_to() -> None:
    (found,) = places(ADMIN, [], snapshot(groups=("a/b?c&d é",)), "a/b")

    assert found.url == "/groups/detail?id=a%2Fb%3Fc%26d%20%C3%A9"


def test_a_few_of_each_kind_are_told() -> None:
    found = places(ADMIN, [], snapshot(tuple(f"t{n}" for n in range(100))), "t")

    assert [place.name for place in found] == [f"t{n}" for n in range(PER_KIND)]


def test_only_topics_that_one_may_read_lead_to_a_tail() -> None:
    vera = User(username="vera", role=Role.VIEWER, readable_topics="orders*")
    found = places(vera, [], snapshot(("orders", "old-orders")), "orders")

    assert [(place.name, bool(place.tail_url)) for place in found] == [
        ("orders", True),
        ("old-orders", False),
    ]


@pytest.mark.django_db
def test_favourites_come_before_anything_is_typed_the_newest_first_and_are_bounded() -> None:
    user = User.objects.create_user("vera", role=Role.VIEWER)
    for number in range(MOST + 1):
        set_favourite(user=user, topic=f"t{number}", is_favourite=True)
    set_favourite(user=user, topic=f"t{MOST}", is_favourite=False)
    user.refresh_from_db()

    found = names(places(user, NAVIGATION, None, ""))
    assert len(user.favourite_topics) == MOST - 1
    assert found[0] == ("Favourite", f"t{MOST - 1}")
    assert found[-1] == ("Page", "Topics")
