"""Records of ``__consumer_offsets``: round trips, versions of old, and bytes that make no sense."""

from __future__ import annotations

import contextlib
import uuid
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator import record_codec
from broker.coordinator.group import records
from broker.coordinator.group.records import (
    CommittedOffset,
    StoredGroup,
    StoredMember,
)
from broker.coordinator.record_codec import MalformedRecord
from broker.model.ids import ZERO_TOPIC_ID

TEXT = st.text(max_size=40)
LONG = st.integers(-1, 2**62)
COMMITTED = st.builds(
    CommittedOffset,
    offset=LONG,
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=300),
    commit_ms=LONG,
    expire_ms=st.just(-1),
    topic_id=st.just(ZERO_TOPIC_ID) | st.uuids(),
)
MEMBER = st.builds(
    StoredMember,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=st.integers(0, 2**31 - 1),
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)
GROUP = st.builds(
    StoredGroup,
    protocol_type=TEXT,
    generation_id=st.integers(0, 2**31 - 1),
    protocol_name=st.none() | TEXT,
    leader_id=st.none() | TEXT,
    state_ms=LONG,
    members=st.lists(MEMBER, max_size=3).map(tuple),
)


@given(TEXT, TEXT, st.integers(0, 2**31 - 1), COMMITTED)
def test_offsets_come_back(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> None:
    key, value = records.offset_record(group_id, topic, partition, committed)
    assert value is not None
    assert records.read_offset_key(key) == (group_id, topic, partition)
    assert records.read_group_id(key) == group_id
    assert records.read_offset_value(value, 7) == committed._replace(record_offset=7)


@given(TEXT, GROUP)
def test_groups_come_back(group_id: str, group: StoredGroup) -> None:
    key, value = records.group_record(group_id, group)
    assert value is not None
    assert record_codec.key_type(key) == records.GROUP_KEY
    assert records.read_group_id(key) == group_id
    assert records.read_group_value(value) == group


def test_an_offset_with_an_expiry_of_its_own_is_written_at_version_1() -> None:
    committed = CommittedOffset(5, 3, "m", 100, 200, uuid.uuid4())
    value = records.offset_record("g", "t", 0, committed).value
    assert value is not None
    assert value[:2] == b"\0\1"
    # That version has no place for epoch and topic.
    read = records.read_offset_value(value, -1)
    assert read == CommittedOffset(5, -1, "m", 100, 200, ZERO_TOPIC_ID)


@pytest.mark.parametrize(
    ("version", "body", "epoch", "expire_ms"),
    [
        (0, pack(">qh1sq", 9, 1, b"m", 7), -1, -1),
        (1, pack(">qh1sqq", 9, 1, b"m", 7, 8), -1, 8),
        (2, pack(">qh1sq", 9, 1, b"m", 7), -1, -1),
        (3, pack(">qih1sq", 9, 4, 1, b"m", 7), 4, -1),
        (4, pack(">qib1sqb", 9, 4, 2, b"m", 7, 0), 4, -1),
        (4, pack(">qib1sq6b", 9, 4, 2, b"m", 7, 1, 9, 3, 1, 2, 3), 4, -1),
    ],
    ids=["0", "1", "2", "3", "4", "4 with a tag of the future"],
)
def test_offsets_of_all_versions(version: int, body: bytes, epoch: int, expire_ms: int) -> None:
    read = records.read_offset_value(pack(">h", version) + body, 1)
    assert read == CommittedOffset(9, epoch, "m", 7, expire_ms, ZERO_TOPIC_ID, 1)


def test_groups_of_all_versions() -> None:
    member = pack(">h1sh1sh1s", 1, b"i", 1, b"c", 1, b"h")
    head = pack(">h1sih1sh1s", 1, b"p", 5, 1, b"r", 1, b"i")
    blobs = pack(">i1si1s", 1, b"s", 1, b"a")
    found = [
        records.read_group_value(
            pack(">h", 0) + head + pack(">i", 1) + member + pack(">i", 6) + blobs
        ),
        records.read_group_value(
            pack(">h", 1) + head + pack(">i", 1) + member + pack(">ii", 9, 6) + blobs
        ),
        records.read_group_value(
            pack(">h", 2) + head + pack(">qi", 77, 1) + member + pack(">ii", 9, 6) + blobs
        ),
    ]
    assert [group.state_ms for group in found] == [-1, -1, 77]
    assert [group.members[0].rebalance_timeout_ms for group in found] == [6, 9, 9]
    flexible = (
        pack(">hb1sib1sb1sq", 4, 2, b"p", 5, 2, b"r", 2, b"i", 77)
        + b"\x02"
        + pack(">b1sbb1sb1s", 2, b"i", 0, 2, b"c", 2, b"h")
        + pack(">ii", 9, 6)
        + pack(">b1sb1sbb", 2, b"s", 2, b"a", 0, 0)
    )
    assert records.read_group_value(flexible) == found[2]


@given(COMMITTED, st.data())
def test_the_quick_way_and_the_long_way_read_the_same(
    committed: CommittedOffset, data: st.DataObject
) -> None:
    value = records.offset_record("g", "t", 0, committed).value
    assert value is not None
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(0, 2))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    quick = records._read_usual_value(bytes(changed), 7)
    if quick is not None:
        assert records._read_any_value(bytes(changed), 7) == quick
    if bytes(changed) == value and len(committed.metadata.encode()) < 127:
        assert quick is not None


@given(st.binary(max_size=60))
def test_anything_is_read_or_refused(data: bytes) -> None:
    for read in (
        record_codec.key_type,
        records.read_group_id,
        records.read_offset_key,
        records.read_group_value,
        lambda value: records.read_offset_value(value, 0),
    ):
        with contextlib.suppress(MalformedRecord):
            read(data)


@given(GROUP, st.data())
def test_a_cut_record_is_refused(group: StoredGroup, data: st.DataObject) -> None:
    value = records.group_record("g", group).value
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(MalformedRecord):
        records.read_group_value(value[:cut])
