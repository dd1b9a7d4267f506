"""Sessions: bounds, eviction, epochs, and what is news."""

from __future__ import annotations

import random

import pytest

from broker.protocol.hot.fetch import FetchPartition, FetchPartitionResult, FetchRequest
from broker.replication import fetch_session
from broker.replication.fetch_session import (
    EVICTION_IDLE_MS,
    MAX_CACHED_PARTITIONS,
    MAX_SESSION_PARTITIONS,
    FetchSessionCache,
    SessionPartition,
    next_epoch,
)


def wanted(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, 1000)


def request(*indexes: int, topic: str = "orders", forgotten: tuple[int, ...] = ()) -> FetchRequest:
    made = FetchRequest(-1, 500, 1, 1000, 0)
    made.topics = [(topic, [wanted(index) for index in indexes])] if indexes else []
    made.forgotten = [(topic, list(forgotten))] if forgotten else []
    return made


def cache(slots: int = 3) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1))


def test_ids_are_positive_and_never_shared() -> None:
    sessions = cache(500)
    ids = {sessions.create(request(0), False, 0).id for _ in range(500)}  # type: ignore[union-attr]
    assert len(ids) == 500
    assert all(0 < each <= 0x7FFFFFFF for each in ids)


def test_a_full_cache_gives_newcomers_no_session() -> None:
    sessions = cache(slots=2)
    assert sessions.create(request(0), False, 0) is not None
    assert sessions.create(request(0), False, 0) is not None
    assert sessions.create(request(0), False, EVICTION_IDLE_MS - 1) is None
    assert len(sessions) == 2


def test_a_cache_without_slots_gives_none() -> None:
    assert cache(slots=0).create(request(0), False, 0) is None


def test_a_session_that_was_idle_for_long_makes_room() -> None:
    sessions = cache(slots=2)
    old = sessions.create(request(0), False, 0)
    used = sessions.create(request(0), False, 0)
    assert old is not None
    assert used is not None
    assert sessions.update(used, request(1), 100)
    newcomer = sessions.create(request(0), False, EVICTION_IDLE_MS)
    assert newcomer is not None
    assert sessions.get(old.id) is None
    assert sessions.get(used.id) is used
    assert sessions.create(request(0), False, EVICTION_IDLE_MS + 50) is None


def test_a_fetch_of_nothing_makes_no_session() -> None:
    assert cache().create(request(), False, 0) is None


def test_a_session_holds_so_many_partitions_and_no_more() -> None:
    sessions = cache()
    assert sessions.create(request(*range(MAX_SESSION_PARTITIONS + 1)), False, 0) is None
    session = sessions.create(request(*range(MAX_SESSION_PARTITIONS)), False, 0)
    assert session is not None
    assert sessions.update(session, request(5, 6), 0)  # known ones
    assert sessions.update(session, request(99_999, forgotten=(5,)), 0)
    assert not sessions.update(session, request(5), 0)
    assert sessions.get(session.id) is None
    assert len(sessions) == 0
    assert sessions._partition_count == 0


@pytest.mark.interpreted
def test_all_sessions_together_hold_so_many_partitions_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_CACHED_PARTITIONS >= MAX_SESSION_PARTITIONS
    monkeypatch.setattr(fetch_session, "MAX_CACHED_PARTITIONS", 100)
    sessions = cache(slots=50)
    first = sessions.create(request(*range(60)), False, 0)
    second = sessions.create(request(*range(40)), False, 0)
    assert first is not None
    assert second is not None
    assert sessions.create(request(0), False, 0) is None
    assert not sessions.update(second, request(77), 0)  # grows over it: ended
    assert sessions.get(second.id) is None
    assert sessions.create(request(*range(40)), False, 0) is not None
    # Both that are left have been idle: as many of them go as are in the way.
    assert sessions.create(request(*range(70)), False, EVICTION_IDLE_MS) is not None
    assert len(sessions) == 1
    assert sessions._partition_count == 70


def test_partitions_named_twice_count_once() -> None:
    sessions = cache()
    session = sessions.create(request(1, 1, 1), False, 0)
    assert session is not None
    assert sessions._partition_count == len(session.partitions) == 1
    sessions.remove(session.id)
    sessions.remove(session.id)
    assert sessions._partition_count == 0


def test_forgotten_partitions_are_gone_and_come_back_last() -> None:
    sessions = cache()
    session = sessions.create(request(0, 1, 2), False, 0)
    assert session is not None
    sessions.update(session, request(forgotten=(0, 9)), 0)
    sessions.update(session, request(0), 0)
    assert [key[1] for key in session.partitions] == [1, 2, 0]


def test_served_partitions_go_to_the_end() -> None:
    sessions = cache()
    session = sessions.create(request(0, 1, 2), False, 0)
    assert session is not None
    session.rotate([("orders", 0), ("orders", 7)])
    assert [key[1] for key in session.partitions] == [1, 2, 0]


def test_epochs_wrap_past_those_with_a_meaning() -> None:
    assert next_epoch(1) == 2
    assert next_epoch(0x7FFFFFFF) == 1


def result(**changes: object) -> FetchPartitionResult:
    made = FetchPartitionResult(0, 0, 10, 10, 0)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_what_is_news_to_a_client() -> None:
    entry = SessionPartition("orders", wanted(0))
    assert entry.has_news(result())
    entry.told(result())
    assert not entry.has_news(result())
    assert entry.has_news(result(high_watermark=11))
    assert entry.has_news(result(log_start_offset=1))
    assert entry.has_news(result(error_code=3))
    assert entry.has_news(result(diverging_epoch=(1, 5)))
    assert entry.has_news(result(records=b"batch"))
    entry.told(result(error_code=3))
    assert entry.has_news(result())  # the error is over
    entry.told(result())
    assert not entry.has_news(result())


def test_a_changed_request_is_looked_at_again() -> None:
    entry = SessionPartition("orders", wanted(0))
    entry.quiet_version = 5
    entry.update(wanted(0, offset=7))
    assert entry.quiet_version == -1
    assert entry.fetch_offset == 7
