"""What is told of moves while they go on: how far, and who does not get on."""

from __future__ import annotations

from broker.model.ids import TopicPartition
from dashboard.move_progress import MoveProgress, Waiting
from dashboard.moves_wire import UnderWay

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
#: Broker 3 comes, broker 1 goes.
STATE = UnderWay(replicas=(3, 2, 1), adding=(3,), removing=(1,))


def test_bytes_of_new_replicas_tell_how_far_it_is() -> None:
    progress = MoveProgress([FIRST, SECOND], 0)
    leaders = {FIRST: 100, SECOND: 300}
    progress.look({FIRST: STATE, SECOND: STATE}, {1: leaders, 2: leaders, 3: {FIRST: 40}}, 1)
    assert (progress.arrived_count, progress.copied_bytes, progress.size_bytes) == (0, 40, 400)
    progress.look({SECOND: STATE}, {1: leaders, 2: leaders, 3: {FIRST: 100, SECOND: 150}}, 2)
    assert (progress.arrived_count, progress.copied_bytes, progress.size_bytes) == (1, 250, 400)
    progress.look({}, {}, 3)
    assert (progress.arrived_count, progress.copied_bytes, progress.size_bytes) == (2, 400, 400)
    assert progress.waiting == []


def test_who_does_not_grow_is_named_with_the_time_since_when() -> None:
    progress = MoveProgress([FIRST, SECOND], 0)
    leaders = {FIRST: 100, SECOND: 100}
    for now_ms in (0, 5_000, 10_000):
        sizes = {2: leaders, 3: {FIRST: 40, SECOND: now_ms // 1000}}
        progress.look({FIRST: STATE, SECOND: STATE}, sizes, now_ms)
    assert progress.stalled(10_000, 10_000) == [Waiting(FIRST, 3, 40, 100, since_ms=0)]
    assert progress.moved_ms == 10_000
    progress.look({FIRST: STATE, SECOND: STATE}, {2: leaders}, 15_000)  # broker 3 is silent
    assert [each.copied for each in progress.waiting] == [40, 10]
    assert progress.moved_ms == 10_000


def test_a_broker_that_never_told_has_an_unknown_size() -> None:
    progress = MoveProgress([FIRST], 0)
    progress.look({FIRST: STATE}, {2: {FIRST: 7}}, 0)
    progress.look({FIRST: STATE}, {2: {FIRST: 7}}, 9)
    assert progress.waiting == [Waiting(FIRST, 3, None, 7, since_ms=0)]


def test_a_move_that_adds_nobody_waits_for_those_that_stay() -> None:
    progress = MoveProgress([FIRST], 0)
    state = UnderWay(replicas=(2, 1), adding=(), removing=(1,))
    progress.look({FIRST: state}, {1: {FIRST: 9}, 2: {FIRST: 5}}, 0)
    assert progress.waiting == [Waiting(FIRST, 2, 5, 9, since_ms=0)]


def test_moves_of_others_do_not_count() -> None:
    progress = MoveProgress([FIRST], 0)
    progress.look({SECOND: STATE}, {}, 0)
    assert (progress.left, progress.arrived_count) == ({}, 1)
