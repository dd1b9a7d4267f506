"""How fast what is moved may be copied."""

from __future__ import annotations

from broker.replication.throttle import ReplicationThrottle, is_throttled


def test_what_was_read_at_once_is_paid_off_at_the_rate() -> None:
    throttle = ReplicationThrottle(lambda: 1000, 0)
    assert throttle.wait_ms(0) == 0
    throttle.record(2500, 0)
    assert throttle.wait_ms(0) == 2501
    assert throttle.wait_ms(2400) == 101
    assert throttle.wait_ms(2500) == 0


def test_a_rest_saves_one_second_at_most() -> None:
    throttle = ReplicationThrottle(lambda: 1000, 0)
    throttle.record(3000, 60_000)
    assert throttle.wait_ms(60_000) == 2001


def test_a_rate_that_is_lowered_holds_at_once_and_one_that_is_raised_frees() -> None:
    rates = [(1 << 63) - 1]
    throttle = ReplicationThrottle(lambda: rates[0], 0)
    throttle.record(1 << 30, 10)
    assert throttle.wait_ms(20) == 0
    rates[0] = 100
    throttle.record(1100, 30)
    assert throttle.wait_ms(30) == 10_001
    rates[0] = 1_000_000
    assert throttle.wait_ms(40) == 0


def test_a_topic_names_its_replicas_or_all() -> None:
    assert is_throttled(frozenset({"0:1", "3:2"}), 3, 2)
    assert not is_throttled(frozenset({"0:1", "3:2"}), 2, 3)
    assert is_throttled(frozenset({"*"}), 2, 3)
    assert not is_throttled(frozenset(), 0, 1)
