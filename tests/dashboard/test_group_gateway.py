"""Consumer groups through the gateway: asked by plain sockets and by the library."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from broker.model.ids import TopicPartition
from dashboard import group_wire
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.gateway import Gateway
from dashboard.gateway.group_gateway import GROUPS_PER_REQUEST
from dashboard.groups import CommittedOffset, GroupView
from tests.support import processes
from tests.support.fixtures import Broker

pytestmark = pytest.mark.conformance
NewName = Callable[[], str]


@pytest.fixture
def topic(gateway: Gateway, new_topic_name: NewName) -> str:
    name = new_topic_name()
    gateway.create_topics([name], partitions=2)
    return name


@pytest.fixture
def vacant(gateway: Gateway, topic: str, new_topic_name: NewName) -> str:
    """A group without members that has committed 0 for the first partition."""
    name = new_topic_name()
    key = TopicPartition(topic, 0)
    assert gateway.groups.alter_offsets(name, {key: 0}) == {key: None}
    return name


@pytest.fixture
def occupied(broker: Broker, topic: str, new_topic_name: NewName) -> Iterator[str]:
    """A group with one member."""
    name = new_topic_name()
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    assigned: list[object] = []
    member.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))

    def is_member() -> bool:
        member.poll(0.1)
        return bool(assigned)

    processes.wait_until(is_member, 60, "an assignment")
    yield name
    member.close()


@pytest.fixture(params=["gateway", "library_only"])
def either(request: pytest.FixtureRequest) -> Gateway:
    found: Gateway = request.getfixturevalue(request.param)
    return found


def test_groups_are_listed(either: Gateway, vacant: str, occupied: str) -> None:
    listings = {listing.group: listing for listing in either.groups.listings()}
    assert (listings[vacant].state, listings[vacant].group_type) == ("Empty", "classic")
    assert listings[occupied].state == "Stable"


def test_groups_are_described(either: Gateway, vacant: str, occupied: str, topic: str) -> None:
    found = either.groups.describe([vacant, occupied, f"{vacant}-none"])
    assert list(found) == [vacant, occupied, f"{vacant}-none"]
    view = found[occupied]
    assert isinstance(view, GroupView)
    assert (view.state, view.group_type, view.assignor) == ("Stable", "classic", "range")
    (member,) = view.members
    assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert view.coordinator is not None
    assert view.coordinator.broker_id == 1
    empty = found[vacant]
    assert isinstance(empty, GroupView)
    assert empty.is_vacant
    missing = found[f"{vacant}-none"]
    assert isinstance(missing, KafkaFailure)
    assert missing.code == "GROUP_ID_NOT_FOUND"


def test_committed_offsets_are_told(either: Gateway, vacant: str, topic: str) -> None:
    found = either.groups.committed([vacant, f"{vacant}-none"])
    assert found[f"{vacant}-none"] == {}
    commits = found[vacant]
    assert not isinstance(commits, KafkaFailure)
    assert {key: at.offset for key, at in commits.items()} == {TopicPartition(topic, 0): 0}


def test_offsets_that_cannot_be_committed_fail_alone(
    either: Gateway, vacant: str, topic: str
) -> None:
    good, bad = TopicPartition(topic, 1), TopicPartition(topic, 9)
    outcome = either.groups.alter_offsets(vacant, {good: 0, bad: 0})
    assert outcome[good] is None
    failure = outcome[bad]
    assert failure is not None
    assert failure.code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_members_keep_their_offsets_and_their_group(
    gateway: Gateway, occupied: str, topic: str
) -> None:
    key = TopicPartition(topic, 0)
    altered = gateway.groups.alter_offsets(occupied, {key: 0})[key]
    assert altered is not None
    assert altered.code == "UNKNOWN_MEMBER_ID"
    forgotten = gateway.groups.delete_offsets(occupied, [key])[key]
    assert forgotten is not None
    assert forgotten.code == "GROUP_SUBSCRIBED_TO_TOPIC"
    deleted = gateway.groups.delete([occupied])[occupied]
    assert deleted is not None
    assert deleted.code == "NON_EMPTY_GROUP"


def test_what_the_library_cannot_do_is_said(library_only: Gateway, vacant: str, topic: str) -> None:
    key = TopicPartition(topic, 0)
    failure = library_only.groups.delete_offsets(vacant, [key])[key]
    assert failure is not None
    assert failure.code == "UNSUPPORTED_VERSION"


def test_a_listener_that_does_not_understand_is_a_failure_of_the_way(broker: Broker) -> None:
    gateway = Gateway(broker.bootstrap, {"security.protocol": "SSL"}, timeout_s=1)
    with pytest.raises(KafkaFailure) as caught:
        gateway.groups.listings()
    assert caught.value.is_transport


def test_a_protocol_that_is_not_served_is_said_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(broker.bootstrap, {"group.protocol": "consumer"})
    monkeypatch.setattr(gateway._link, "serves", lambda request: request != (68, 0))
    with pytest.raises(KafkaFailure, match=r"group\.protocol=consumer"):
        gateway.group_reader(
            "g",
            ["t"],
            from_end=False,
            read_committed=False,
            on_assigned=lambda _: None,
            on_revoked=lambda _: None,
        )


def test_many_groups_take_few_requests(
    gateway: Gateway, vacant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = group_wire.committed_offsets

    def counted(connection: object, groups: list[str]) -> object:
        asked.append(len(groups))
        return original(connection, groups)  # type: ignore[arg-type]

    monkeypatch.setattr(group_wire, "committed_offsets", counted)
    names = [vacant, *(f"{vacant}-{number}" for number in range(GROUPS_PER_REQUEST + 1))]
    found = gateway.groups.committed(names)
    assert len(found) == GROUPS_PER_REQUEST + 2
    assert asked == [GROUPS_PER_REQUEST, 2]


def test_a_coordinator_that_still_loads_is_asked_again(
    gateway: Gateway, vacant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = KafkaFailure("COORDINATOR_LOAD_IN_PROGRESS", "")
    key = TopicPartition("t", 0)
    answers = [{vacant: loading}, {vacant: {key: CommittedOffset(7)}}]
    monkeypatch.setattr(group_wire, "committed_offsets", lambda *_: answers.pop(0))
    assert gateway.groups.committed([vacant]) == {vacant: {key: CommittedOffset(7)}}


def test_one_that_never_gets_ready_is_told_after_the_timeout(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(broker.bootstrap, timeout_s=0.3)
    failure = KafkaFailure("COORDINATOR_NOT_AVAILABLE", "")
    monkeypatch.setattr(
        group_wire, "find_coordinators", lambda _, groups: dict.fromkeys(groups, failure)
    )
    assert gateway.groups.describe(["g"]) == {"g": failure}


def test_addresses_of_version_six_have_brackets() -> None:
    assert BrokerView(1, "::1", 9092).address == "[::1]:9092"
