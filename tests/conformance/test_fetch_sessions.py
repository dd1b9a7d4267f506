"""Incremental fetch sessions (KIP-227), by name and by topic id (C017)."""

import uuid
from typing import Any

import pytest

from tests.support import record_batches as rb
from tests.support import requests
from tests.support.requests import create_topic, fetch_fields, produce_values
from tests.support.wire import Struct, Wire

SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 70, 71, 100, 103


class Session:
    """A fetcher that keeps a session, at one version."""

    def __init__(self, wire: Wire, version: int) -> None:
        self.wire, self.version = wire, version
        self.session_id = self.epoch = 0

    def fetch(
        self,
        topics: dict[Any, dict[int, int]],
        *,
        forgotten: dict[Any, list[int]] | None = None,
        **options: Any,
    ) -> Struct:
        key = "topic_id" if self.version >= 13 else "topic"
        fields = fetch_fields("unused", {}, **{"max_wait": 0, **options})
        fields["topics"] = [
            fetch_fields(topic, offsets)["topics"][0] for topic, offsets in topics.items()
        ]
        fields["forgotten_topics_data"] = [
            {key: topic, "partitions": partitions}
            for topic, partitions in (forgotten or {}).items()
        ]
        fields["session_id"], fields["session_epoch"] = self.session_id, self.epoch
        answer = self.wire.request("fetch", self.version, **fields)
        if answer.error_code == 0 and answer.session_id:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


def parts(answer: Struct) -> dict[tuple[Any, int], Struct]:
    return {
        (getattr(entry, "topic_id", None) or entry.topic, part.partition_index): part
        for entry in answer.responses
        for part in entry.partitions
    }


@pytest.fixture(params=[7, 11, 12, 13, 17])
def session(request: pytest.FixtureRequest, wire: Wire) -> Session:
    return Session(wire, request.param)


def new_topic(session: Session, **options: Any) -> tuple[str, Any]:
    """(name, what fetches of this version call it)"""
    name = create_topic(session.wire, **options)
    return name, requests.topic_id(session.wire, name) if session.version >= 13 else name


def test_only_what_changed_comes_back(session: Session) -> None:
    name, topic = new_topic(session, partitions=5)
    first = session.fetch({topic: dict.fromkeys(range(5), 0)})
    assert first.session_id > 0
    assert len(parts(first)) == 5
    assert parts(session.fetch({})) == {}
    produce_values(session.wire, name, [b"v"], partition=3)
    second = session.fetch({})
    assert second.session_id == first.session_id
    assert list(parts(second)) == [(topic, 3)]
    assert len(rb.records(parts(second)[topic, 3].records)) == 1
    # Until its offset is moved, the same records come again.
    assert list(parts(session.fetch({}))) == [(topic, 3)]
    assert parts(session.fetch({topic: {3: 1}})) == {}


def test_partitions_are_added_and_forgotten(session: Session) -> None:
    name, topic = new_topic(session, partitions=3)
    session.fetch({topic: {0: 0}})
    added = session.fetch({topic: {1: 0, 2: 0}})
    assert sorted(parts(added)) == [(topic, 1), (topic, 2)]
    session.fetch({}, forgotten={topic: [0, 1]})
    for index in range(3):
        produce_values(session.wire, name, [b"v"], partition=index)
    assert list(parts(session.fetch({}))) == [(topic, 2)]


def test_a_new_start_offset_is_told(session: Session) -> None:
    name, topic = new_topic(session)
    produce_values(session.wire, name, [b"a"])
    produce_values(session.wire, name, [b"b"])
    session.fetch({topic: {0: 2}})
    assert parts(session.fetch({})) == {}
    assert requests.delete_records(session.wire, name, 1).error_code == 0
    (part,) = parts(session.fetch({})).values()
    assert (part.log_start_offset, part.error_code) == (1, 0)
    assert parts(session.fetch({})) == {}


def test_a_wrong_epoch_is_refused_and_leaves_the_session_alone(session: Session) -> None:
    _, topic = new_topic(session)
    session.fetch({topic: {0: 0}})
    right = session.epoch
    for wrong in (right + 1, right + 7):
        session.epoch = wrong
        answer = session.fetch({})
        assert (answer.error_code, answer.responses) == (INVALID_SESSION_EPOCH, [])
    session.epoch = right
    assert session.fetch({}).error_code == 0


def test_an_unknown_session_is_told(session: Session) -> None:
    session.session_id, session.epoch = 123_456_789, 1
    answer = session.fetch({})
    assert (answer.error_code, answer.responses) == (SESSION_NOT_FOUND, [])


def test_a_session_ends_with_the_last_epoch(session: Session) -> None:
    name, topic = new_topic(session)
    produce_values(session.wire, name, [b"v"])
    session.fetch({topic: {0: 0}})
    old, session.epoch = session.session_id, -1
    answer = session.fetch({topic: {0: 0}})
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert list(parts(answer)) == [(topic, 0)]
    session.session_id, session.epoch = old, 2
    assert session.fetch({}).error_code == SESSION_NOT_FOUND


def test_epoch_zero_replaces_the_session(session: Session) -> None:
    _, topic = new_topic(session)
    session.fetch({topic: {0: 0}})
    old, session.epoch = session.session_id, 0
    answer = session.fetch({topic: {0: 0}})
    assert answer.error_code == 0
    assert answer.session_id not in (0, old)


def test_without_a_session_none_is_made(session: Session) -> None:
    _, topic = new_topic(session)
    session.epoch = -1
    answer = session.fetch({topic: {0: 0}})
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert list(parts(answer)) == [(topic, 0)]


def test_errors_come_again_until_they_are_mended(session: Session) -> None:
    name, topic = new_topic(session)
    answer = session.fetch({topic: {0: 5}})
    assert parts(answer)[topic, 0].error_code == 1
    for _ in range(2):
        assert parts(session.fetch({}))[topic, 0].error_code == 1
    produce_values(session.wire, name, [b"v"] * 6)
    found = parts(session.fetch({}))[topic, 0]
    assert found.error_code == 0
    assert found.high_watermark == 6


@pytest.mark.parametrize("version", [13, 17])
def test_an_unknown_topic_id_does_not_end_the_session(wire: Wire, version: int) -> None:
    session = Session(wire, version)
    name, topic = new_topic(session)
    session.fetch({topic: {0: 0}})
    unknown = uuid.uuid4()
    answer = session.fetch({unknown: {0: 0}})
    assert (answer.error_code, answer.session_id) == (0, session.session_id)
    assert parts(answer)[unknown, 0].error_code == UNKNOWN_TOPIC_ID
    produce_values(wire, name, [b"v"])
    found = parts(session.fetch({}))
    assert found[topic, 0].error_code == 0
    assert len(rb.records(found[topic, 0].records)) == 1


@pytest.mark.parametrize("version", [13, 17])
def test_a_topic_made_anew_shows_as_another(wire: Wire, version: int) -> None:
    session = Session(wire, version)
    name, old = new_topic(session)
    other, other_id = new_topic(session)
    session.fetch({old: {0: 0}, other_id: {0: 0}})
    requests.delete_topic(wire, name)
    create_topic(wire, name)
    new = requests.topic_id(wire, name)
    produce_values(wire, name, [b"new"])
    produce_values(wire, other, [b"other"])
    answer = session.fetch({})
    assert answer.error_code == 0
    found = parts(answer)
    assert found[old, 0].error_code in (UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID)
    assert not found[old, 0].records
    assert found[other_id, 0].error_code == 0
    found = parts(session.fetch({new: {0: 0}}, forgotten={old: [0]}))
    assert [record.value for record in rb.records(found[new, 0].records)] == [b"new"]


def test_names_and_ids_do_not_mix_in_one_session(wire: Wire) -> None:
    session = Session(wire, 12)
    name, _ = new_topic(session)
    session.fetch({name: {0: 0}})
    session.version = 13
    answer = session.fetch({requests.topic_id(wire, name): {0: 0}})
    assert answer.error_code == 106  # FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_over_five_hundred_partitions(wire: Wire) -> None:
    session = Session(wire, 17)
    name, topic = new_topic(session, partitions=500)
    session.fetch({topic: dict.fromkeys(range(500), 0)})
    changed = [0, 99, 250, 251, 499]
    for index in changed:
        produce_values(wire, name, [b"v"], partition=index)
    found = parts(session.fetch({}))
    assert sorted(index for _, index in found) == changed
    moved = session.fetch({topic: dict.fromkeys(changed, 1)})
    assert parts(moved) == {}


def test_long_polls_of_a_session_wake_for_any_of_its_partitions(wire: Wire) -> None:
    session = Session(wire, 17)
    name, topic = new_topic(session, partitions=50)
    session.fetch({topic: dict.fromkeys(range(50), 0)})
    fields = fetch_fields("unused", {}, max_wait=20_000)
    fields |= {"topics": [], "session_id": session.session_id, "session_epoch": session.epoch}
    other = Wire(wire.socket.getpeername()[:2])
    try:
        other.send("fetch", 17, **fields)
        produce_values(wire, name, [b"v"], partition=33)
        answer = other.receive()
        assert list(parts(answer)) == [(topic, 33)]
    finally:
        other.close()
