"""Timers by key."""

from __future__ import annotations

import random

import pytest

from broker.coordinator.timers import RETRY_MS, Timers


def test_fire_in_order_of_deadlines() -> None:
    timers, fired = Timers(), []
    for key, deadline in (("b", 20), ("a", 10), ("c", 30)):
        timers.set(key, deadline, lambda now_ms, key=key: fired.append((key, now_ms)))
    assert timers.next_deadline_ms == 10
    assert timers.fire(25) == 2
    assert fired == [("a", 25), ("b", 25)]
    assert len(timers) == 1


def test_setting_anew_replaces_in_both_directions() -> None:
    timers, fired = Timers(), []
    timers.set("later", 10, lambda _: fired.append("early"))
    timers.set("later", 50, lambda _: fired.append("later"))
    timers.set("sooner", 50, lambda _: fired.append("late"))
    timers.set("sooner", 10, lambda _: fired.append("sooner"))
    timers.fire(49)
    assert fired == ["sooner"]
    timers.fire(50)
    assert fired == ["sooner", "later"]


def test_one_that_an_earlier_one_cancels_does_not_fire() -> None:
    timers, fired = Timers(), []
    timers.set("first", 1, lambda _: timers.cancel("second"))
    timers.set("second", 2, lambda _: fired.append("second"))
    assert timers.fire(10) == 1
    assert fired == []


def test_a_callback_may_set_its_own_timer_again() -> None:
    timers, fired = Timers(), []

    def again(now_ms: int) -> None:
        fired.append(now_ms)
        timers.set("key", now_ms + 10, again)

    timers.set("key", 10, again)
    for now_ms in (10, 15, 20):
        timers.fire(now_ms)
    assert fired == [10, 20]


def test_heartbeats_do_not_let_the_heap_grow() -> None:
    timers = Timers()
    for now_ms in range(10_000):
        for member in range(10):
            timers.set(member, now_ms + 100, lambda _: None)
            timers.set(member, now_ms + 50, lambda _: None)
        timers.fire(now_ms)
    assert len(timers._heap) <= 64


def test_agrees_with_a_plain_dictionary() -> None:
    dice = random.Random(3)
    timers, plain = Timers(), {}
    fired: list[int] = []
    for now_ms in range(3000):
        for _ in range(dice.randrange(4)):
            key = dice.randrange(12)
            if dice.random() < 0.3:
                timers.cancel(key)
                plain.pop(key, None)
            else:
                plain[key] = now_ms + dice.randrange(40)
                timers.set(key, plain[key], lambda _, key=key: fired.append(key))
        if dice.random() < 0.01:
            timers.cancel_where(lambda key: key == 5)
            plain.pop(5, None)
        fired.clear()
        timers.fire(now_ms)
        due = {key for key, deadline in plain.items() if deadline <= now_ms}
        assert set(fired) == due
        assert len(fired) == len(due)
        for key in due:
            del plain[key]
        next_ms = timers.next_deadline_ms
        assert not plain or (next_ms is not None and next_ms <= min(plain.values()))


def test_one_that_fails_is_called_again_and_stops_no_other() -> None:
    timers, fired = Timers(), []

    def fail_once(now_ms: int) -> None:
        fired.append(("fails", now_ms))
        if len(fired) == 1:
            raise RuntimeError("a fault of ours")

    timers.set("fails", 10, fail_once)
    timers.set("other", 11, lambda now_ms: fired.append(("other", now_ms)))
    with pytest.raises(RuntimeError, match="a fault"):
        timers.fire(20)
    assert timers.fire(20) == 1
    assert timers.next_deadline_ms == 20 + RETRY_MS
    timers.fire(20 + RETRY_MS)
    assert fired == [("fails", 20), ("other", 20), ("fails", 20 + RETRY_MS)]
    assert len(timers) == 0


def test_one_that_was_set_anew_before_it_failed_keeps_that() -> None:
    timers = Timers()

    def fail(now_ms: int) -> None:
        timers.set("fails", 500, fail)
        raise RuntimeError("a fault of ours")

    timers.set("fails", 10, fail)
    with pytest.raises(RuntimeError, match="a fault"):
        timers.fire(20)
    assert timers.deadline_ms("fails") == 500
