"""Brokers that register, one that becomes the controller, and what it makes of them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.metadata import znodes
from broker.metadata.candidacy import Candidacy
from broker.metadata.changes import TopicCreated
from broker.metadata.controller import Controller
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from broker.metadata.load import read_image
from broker.metadata.registration import Registration
from broker.metadata.requests import AlteredIsr, PartitionName, Reassigned, Reassignment
from broker.metadata.store import Create, Delete, SetData
from broker.metadata.term import ControllerTerm
from broker.metadata.writes import operations_for
from broker.metadata.znodes import TopicAssignment
from broker.model.error_code import ErrorCode
from broker.model.features import SUPPORTED, SupportedFeature
from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import IsrMember, IsrProposal
from tests.broker.metadata.test_simulated_zookeeper import TurnSchedule
from tests.support.metadata import CLUSTER_ID, FixedClock
from tests.support.simulated_zookeeper import SimulatedStore, ZooKeeperServer, found_cluster
from tests.support.turns import Turns

TOPIC = "orders"
REPLICAS = tuple(map(BrokerId, (1, 2, 3)))


class Member:
    """One broker's part in the cluster's metadata."""

    def __init__(
        self,
        world: ClusterWorld,
        number: int,
        directory_id: str = "",
        features: tuple[SupportedFeature, ...] = SUPPORTED,
    ) -> None:
        self.broker_id = BrokerId(number)
        self.store = SimulatedStore(world.server, world.schedule, number)
        self.epochs: list[int] = []
        self.rivals: list[BrokerImage] = []
        self._world = world
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + number, "PLAINTEXT")
        self.registration = Registration(
            self.store,
            BrokerImage(self.broker_id, -1, (endpoint,), None, features),
            directory_id or f"directory-{number}",
            FixedClock(),
            self.epochs.append,
            lambda rival, since_ms: self.rivals.append(rival),
        )
        self.candidacy = Candidacy(self.store, self.broker_id, self._new_term, lambda _: None)
        self.store.on_session(self.registration.on_session)
        self.store.on_session(self.candidacy.on_session)

    def start(self) -> Member:
        self.registration.start()
        self.candidacy.start()
        self._world.turns.run()
        return self

    def die(self) -> None:
        """The process is gone; its session is still there."""
        self.registration.stop()
        self.candidacy.stop()

    def stop(self) -> None:
        """The process is gone, and its session ends."""
        self.die()
        self._world.server.expire(self.store.session_id)
        self._world.turns.run()

    @property
    def term(self) -> ControllerTerm:
        assert isinstance(self.candidacy.term, ControllerTerm)
        return self.candidacy.term

    @property
    def image(self) -> ClusterImage:
        return self.term.controller.image

    def _new_term(self, on_stopped: Callable[[str], None]) -> ControllerTerm:
        def new_controller(on_image: Any, on_stopped: Any) -> Controller:
            return Controller(
                store=self.store,
                broker_id=self.broker_id,
                broker_config=lambda: resolve_broker_config({}),
                clock=FixedClock(),
                new_topic_id=uuid.uuid4,
                dice=random.Random(1),
                post=self._world.turns.post,
                on_image=on_image,
                on_stopped=on_stopped,
            )

        return ControllerTerm(CLUSTER_ID, self.broker_id, new_controller, lambda: None, on_stopped)


class ClusterWorld:
    def __init__(self) -> None:
        self.turns = Turns()
        self.schedule = TurnSchedule(self.turns)
        self.server = ZooKeeperServer(self.schedule)
        found_cluster(self.server, CLUSTER_ID)

    def create_topic(self, leader: int, *isr: int) -> None:
        """Before any controller: as an earlier cluster left it."""
        missing = set(znodes.CLUSTER_SKELETON) - self.server.tree.nodes.keys()
        self.server.submit(0, [Create(path) for path in sorted(missing)])
        partition = PartitionImage(
            0, BrokerId(leader), 5, 0, REPLICAS, frozenset(map(BrokerId, isr))
        )
        topic = TopicImage(TOPIC, uuid.UUID(int=1000), (partition,))
        self.server.submit(
            0, list(operations_for(ClusterImage(), [TopicCreated(topic)], NO_BROKER))
        )

    def state(self) -> tuple[int, int, set[int]]:
        """Leader, leader epoch, ISR as the store has them."""
        node = self.server.tree.get(znodes.partition_state_path(TOPIC, 0))
        assert node is not None
        state = znodes.decode_partition_state(node.data)
        return state.leader_id, state.leader_epoch, set(state.isr)

    def assignment(self) -> TopicAssignment:
        node = self.server.tree.get(znodes.topic_path(TOPIC))
        assert node is not None
        return znodes.decode_topic(node.data)

    def answered(self) -> dict[BrokerId, int]:
        node = self.server.tree.get(znodes.BROKER_EPOCHS)
        assert node is not None
        return znodes.decode_broker_epochs(node.data)


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


# Registration


def test_the_first_to_come_is_the_controller_and_all_are_registered(world: ClusterWorld) -> None:
    one, two = Member(world, 1).start(), Member(world, 2).start()
    assert one.candidacy.is_in_office
    assert two.candidacy.term is None
    assert two.candidacy.controller_id == 1
    assert set(one.image.brokers) == {1, 2}
    assert world.answered() == {1: one.epochs[-1], 2: two.epochs[-1]}


def test_a_stale_registration_of_the_same_directory_is_replaced(world: ClusterWorld) -> None:
    """Case C093: the node of its earlier session is there still."""
    first = Member(world, 1).start()
    first.die()
    second = Member(world, 1).start()
    assert len(second.epochs) == 1
    assert second.epochs[0] > first.epochs[0]
    assert not second.rivals


def test_a_rival_with_another_directory_is_told_and_replaces_nothing(world: ClusterWorld) -> None:
    first = Member(world, 1).start()
    rival = Member(world, 1, directory_id="elsewhere").start()
    assert rival.epochs == []
    assert [(r.broker_id, r.endpoints[0].port) for r in rival.rivals] == [(1, 9001)]
    assert world.answered()[BrokerId(1)] == first.epochs[0]


def test_a_registration_whose_answer_was_lost_is_known_for_ours(world: ClusterWorld) -> None:
    """Case C094."""
    Member(world, 2).start()
    member = Member(world, 1)
    member.registration.start()
    for _ in range(3):
        world.turns.step()
    world.server.lost_answers.add(1)
    for _ in range(3):
        world.turns.step()
    member.store.connection_lost()
    world.server.lost_answers.discard(1)
    world.turns.run()
    node = world.server.tree.get(znodes.broker_path(BrokerId(1)))
    assert node is not None
    assert member.epochs == [node.creation_id]


def test_an_expired_session_registers_anew_with_a_greater_broker_epoch(
    world: ClusterWorld,
) -> None:
    one, two = Member(world, 1).start(), Member(world, 2).start()
    world.server.expire(two.store.session_id)
    world.turns.run()
    assert len(two.epochs) == 2
    assert two.epochs[1] > two.epochs[0]
    assert one.image.brokers[BrokerId(2)].broker_epoch == two.epochs[1]


def test_no_role_is_taken_before_the_registration_is_answered(world: ClusterWorld) -> None:
    member = Member(world, 1)
    before = ClusterImage(brokers={BrokerId(1): BrokerImage(BrokerId(1), 1, ())})
    assert not member.registration.on_image(before)
    member.start()
    assert not member.registration.on_image(before)
    assert member.registration.on_image(member.image)
    world.server.expire(member.store.session_id)
    world.turns.run()
    assert member.registration.on_image(before)


def test_a_registration_that_is_in_the_image_before_its_broker_knows_of_it_is_answered(
    world: ClusterWorld,
) -> None:
    two = Member(world, 2).start()
    member = Member(world, 1)
    member.registration.start()
    for _ in range(3):
        world.turns.step()
    world.server.lost_answers.add(1)
    world.turns.run()
    assert set(two.image.brokers) == {1, 2}
    # The last image that comes: nothing else happens in this cluster.
    assert not member.registration.on_image(two.image)
    member.store.connection_lost()
    world.server.lost_answers.discard(1)
    world.turns.run()
    assert member.epochs == [two.image.brokers[BrokerId(1)].broker_epoch]
    assert member.registration.was_answered


# Leaders and ISR


def test_a_leader_that_goes_is_replaced_from_the_isr_and_comes_back_outside_of_it(
    world: ClusterWorld,
) -> None:
    world.create_topic(-1, 3)
    three, two, one = (Member(world, number).start() for number in (3, 2, 1))
    assert world.state() == (3, 6, {3})
    propose(world, three, 3, {1, 2, 3})
    assert world.state() == (3, 6, {1, 2, 3})
    three.stop()
    assert world.state() == (1, 7, {1, 2})
    Member(world, 3).start()
    assert world.state() == (1, 7, {1, 2})
    assert two.candidacy.is_in_office or one.candidacy.is_in_office


def test_one_that_restarts_between_two_looks_leaves_the_isr_before_it_is_answered(
    world: ClusterWorld,
) -> None:
    world.create_topic(-1, 1)
    one, two = Member(world, 1).start(), Member(world, 2).start()
    propose(world, one, 1, {1, 2})
    epoch = two.epochs[-1]
    changes: list[tuple[set[int], int | None]] = []
    world.server.on_change = lambda effect: changes.append(
        (world.state()[2], world.answered().get(BrokerId(2)))
    )
    two.die()
    again = Member(world, 2).start()
    assert world.state()[2] == {1}
    assert ({1, 2}, again.epochs[-1]) not in changes
    assert again.epochs[-1] > epoch
    assert world.answered()[BrokerId(2)] == again.epochs[-1]


def test_one_that_restarted_while_there_was_no_controller_leaves_the_isr(
    world: ClusterWorld,
) -> None:
    world.create_topic(-1, 1)
    three, two, _ = (Member(world, number).start() for number in (3, 2, 1))
    propose(world, three, 1, {1, 2})
    # Nobody is in office while 2 registers anew, in its ISR of old.
    world.server.submit(0, [Delete(znodes.broker_path(BrokerId(2)))])
    data = znodes.encode_broker(BrokerImage(BrokerId(2), -1, ()), 0, "directory-2")
    world.server.submit(two.store.session_id, [Create(znodes.broker_path(BrokerId(2)), data, True)])
    three.stop()
    leader, _, isr = world.state()
    assert (leader, isr) == (1, {1})


def test_the_last_member_leads_again_when_it_is_back(world: ClusterWorld) -> None:
    world.create_topic(1, 1)
    one, two = Member(world, 1).start(), Member(world, 2).start()
    leader_epoch = world.state()[1]
    one.stop()
    assert world.state() == (-1, leader_epoch + 1, {1})
    Member(world, 1).start()
    assert world.state() == (1, leader_epoch + 2, {1})
    assert two.candidacy.is_in_office


# Proposals


def propose(
    world: ClusterWorld, controller: Member, leader: int, isr: set[int], **changes: Any
) -> AlteredIsr:
    image = controller.image
    partition = image.partition(TOPIC, 0)
    assert partition is not None
    members = tuple(
        IsrMember(BrokerId(m), image.brokers[BrokerId(m)].broker_epoch if m in image.brokers else 0)
        for m in sorted(isr)
    )
    proposal = IsrProposal(
        BrokerId(leader),
        image.brokers[BrokerId(leader)].broker_epoch,
        partition.leader_epoch,
        partition.partition_epoch,
        members,
    )._replace(**changes)
    answers: list[AlteredIsr] = []
    controller.term.controller.alter_isr(TOPIC, 0, proposal, answers.append)
    world.turns.run()
    [answer] = answers
    return answer


def test_an_accepted_proposal_says_what_the_state_is_now(world: ClusterWorld) -> None:
    world.create_topic(1, 1)
    one = Member(world, 1).start()
    Member(world, 2).start()
    answer = propose(world, one, 1, {1, 2})
    assert answer.state is not None
    assert answer.state.isr == {1, 2}
    assert answer.state == one.image.topics[TOPIC].partitions[0].leadership


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ({1, 2}, {"broker_epoch": 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({1, 2}, {"leader_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({1, 2}, {"leader_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({1, 2}, {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({1, 2}, {"partition_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({2}, {}, ErrorCode.INVALID_REQUEST),
        ({1, 4}, {}, ErrorCode.INVALID_REQUEST),
        ({1, 3}, {}, ErrorCode.INELIGIBLE_REPLICA),
        ({1, 2}, {"members": (IsrMember(BrokerId(1), 0),)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused_and_nothing_is_written(
    world: ClusterWorld, isr: set[int], changes: dict[str, Any], error: ErrorCode
) -> None:
    world.create_topic(1, 1)
    one = Member(world, 1).start()
    Member(world, 2).start()
    before = world.state()
    assert propose(world, one, 1, isr, **changes).error is error
    assert world.state() == before


# Reassignment


def test_a_reassignment_ends_with_the_proposal_that_brings_its_target_into_the_isr(
    world: ClusterWorld,
) -> None:
    world.create_topic(-1, 1)
    four, one = Member(world, 4).start(), Member(world, 1).start()
    answers: list[Reassigned] = []
    wanted = [Reassignment(TOPIC, 0, [BrokerId(4), BrokerId(1)])]
    four.term.controller.reassign(wanted, answers.extend)
    world.turns.run()
    assert [answer.is_success for answer in answers] == [True]
    assert world.assignment() == TopicAssignment(
        uuid.UUID(int=1000), {0: (4, 1, 2, 3)}, {0: (4,)}, {0: (2, 3)}
    )
    restarted = Member(world, 3)
    image: list[ClusterImage | str] = []
    read_image(restarted.store, image.append)
    world.turns.run()
    assert isinstance(image[0], ClusterImage)
    assert image[0].topics == four.image.topics
    state = propose(world, four, 1, {1, 4}).state
    assert state is not None
    assert (state.replicas, state.isr) == ((4, 1), {1, 4})
    assert world.assignment() == TopicAssignment(uuid.UUID(int=1000), {0: (4, 1)}, {}, {})
    assert one.epochs


# Fencing


def test_a_broker_that_refuses_the_controller_and_another_one_is_fenced_until_it_answers(
    world: ClusterWorld,
) -> None:
    world.create_topic(-1, 3)
    three, two, one = (Member(world, number).start() for number in (3, 2, 1))
    assert three.candidacy.is_in_office
    propose(world, three, 3, {1, 2, 3})
    epoch = two.epochs[-1]
    assert three.term.broker_refused(one.broker_id, two.broker_id, epoch, 1000)
    assert not three.term.broker_refused(three.broker_id, two.broker_id, epoch, 1001)
    world.turns.run()
    assert world.state()[2] == {1, 3}
    assert 2 not in three.image.brokers
    assert propose(world, three, 3, {1, 2, 3}).error is ErrorCode.INELIGIBLE_REPLICA
    three.term.broker_answered(two.broker_id)
    world.turns.run()
    assert three.image.brokers[two.broker_id].broker_epoch == epoch
    assert world.state()[2] == {1, 3}


def test_a_fenced_broker_that_registers_anew_is_counted_again(world: ClusterWorld) -> None:
    three, two = Member(world, 3).start(), Member(world, 2).start()
    for observer in (1, 3):
        three.term.broker_refused(BrokerId(observer), two.broker_id, two.epochs[-1], 1000)
    world.turns.run()
    assert 2 not in three.image.brokers
    two.die()
    again = Member(world, 2).start()
    assert three.image.brokers[two.broker_id].broker_epoch == again.epochs[-1]


def test_what_was_seen_later_counts_though_the_earlier_is_under_way(world: ClusterWorld) -> None:
    three = Member(world, 3).start()
    ghost = BrokerImage(BrokerId(9), 12345, ())
    known = dict(three.image.brokers)
    answers: list[bool] = []
    three.term.brokers_seen({**known, BrokerId(9): ghost}, answers.append)
    three.term.brokers_seen(known, answers.append)
    world.turns.run()
    assert set(three.image.brokers) == {3}
    assert answers == [True]


def test_one_that_leaves_is_told_when_others_lead(world: ClusterWorld) -> None:
    world.create_topic(-1, 1)
    three, one, two = (Member(world, number).start() for number in (3, 1, 2))
    propose(world, three, 1, {1, 2})
    told: list[tuple[int, int, set[int]]] = []
    three.term.broker_leaves(one.broker_id, one.epochs[-1], lambda: told.append(world.state()))
    leader_epoch = world.state()[1]
    world.turns.run()
    assert told == [(2, leader_epoch + 1, {2})]
    three.term.broker_leaves(one.broker_id, one.epochs[-1], lambda: told.append(world.state()))
    assert len(told) == 2
    assert two.epochs


def test_a_preferred_leader_is_elected(world: ClusterWorld) -> None:
    world.create_topic(-1, 2)
    two, _ = Member(world, 2).start(), Member(world, 1).start()
    answers: list[ErrorCode] = []

    def elect(topic: str) -> None:
        two.term.controller.elect_leaders(
            [PartitionName(topic, 0)],
            lambda results: answers.extend(result.error for result in results),
        )

    elect(TOPIC)
    world.turns.run()
    propose(world, two, 2, {1, 2})
    leader_epoch = world.state()[1]
    elect(TOPIC)
    elect("none")
    world.turns.run()
    assert world.state() == (1, leader_epoch + 1, {1, 2})
    assert answers == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# Who is the controller


def test_the_next_one_takes_office_when_the_controllers_session_ends(world: ClusterWorld) -> None:
    one, two = Member(world, 1).start(), Member(world, 2).start()
    epoch = one.image.controller_epoch
    one.stop()
    assert two.candidacy.is_in_office
    assert two.image.controller_epoch > epoch
    assert 2 in two.image.brokers


def test_a_controller_that_was_taken_for_dead_writes_nothing_more(world: ClusterWorld) -> None:
    world.create_topic(1, 1)
    one, two = Member(world, 1).start(), Member(world, 2).start()
    old = one.term
    world.server.lost_answers.add(1)
    two.candidacy.suspect()
    world.turns.run()
    assert two.candidacy.is_in_office
    state = world.state()
    answers: list[AlteredIsr] = []
    partition = old.controller.image.topics[TOPIC].partitions[0]
    proposal = IsrProposal(
        BrokerId(1),
        one.epochs[-1],
        partition.leader_epoch,
        partition.partition_epoch,
        (IsrMember(BrokerId(1), one.epochs[-1]), IsrMember(BrokerId(2), two.epochs[-1])),
    )
    old.controller.alter_isr(TOPIC, 0, proposal, answers.append)
    world.turns.run()
    assert world.state() == state
    one.store.connection_lost()
    world.server.lost_answers.discard(1)
    world.turns.run()
    assert [answer.is_success for answer in answers] == [False]
    assert one.candidacy.term is None
    assert one.candidacy.controller_id == 2


def test_a_controller_node_that_its_own_session_left_is_replaced(world: ClusterWorld) -> None:
    one = Member(world, 1).start()
    epoch = one.image.controller_epoch
    term = one.term
    # Its term ended in a doubt that the store could not settle; the node is still there.
    term.stop("in doubt")
    one.candidacy._end_term("in doubt")
    one.candidacy.start()
    world.turns.run()
    assert one.candidacy.is_in_office
    assert one.image.controller_epoch == epoch + 1


def test_a_write_by_somebody_else_is_noticed_and_the_image_read_anew(world: ClusterWorld) -> None:
    world.create_topic(1, 1)
    one = Member(world, 1).start()
    Member(world, 2).start()
    path = znodes.partition_state_path(TOPIC, 0)
    node = world.server.tree.get(path)
    assert node is not None
    world.server.submit(0, [SetData(path, node.data)])
    assert propose(world, one, 1, {1, 2}).error is ErrorCode.NOT_CONTROLLER
    assert propose(world, one, 1, {1, 2}).is_success
