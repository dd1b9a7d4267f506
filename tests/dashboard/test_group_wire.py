import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import data
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from broker.model.ids import TopicPartition
from dashboard.group_wire import parse_assignment

assignments = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.sets(st.integers(0, 2**31 - 1), max_size=5),
    max_size=4,
)


def encoded(assignment: dict[str, set[int]], version: int, user_data: bytes | None) -> bytes:
    buffer = io.BytesIO()
    entity_writer(data.ConsumerProtocolAssignment)(
        buffer,
        data.ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                data.TopicPartition(topic=TopicName(topic), partitions=tuple(map(i32, indexes)))
                for topic, indexes in assignment.items()
            ),
            user_data=user_data,
        ),
    )
    return version.to_bytes(2, "big") + buffer.getvalue()


@given(assignments, st.integers(0, 3), st.none() | st.binary(max_size=20))
def test_what_members_write_is_read(
    assignment: dict[str, set[int]], version: int, user_data: bytes | None
) -> None:
    expected = sorted(TopicPartition(t, i) for t, indexes in assignment.items() for i in indexes)
    assert list(parse_assignment(encoded(assignment, version, user_data))) == expected


@given(assignments.filter(bool), st.data())
def test_what_is_cut_short_is_refused(
    assignment: dict[str, set[int]], choice: st.DataObject
) -> None:
    whole = encoded(assignment, 0, None)
    # The user data that follow, four bytes here, are nothing to us.
    cut = choice.draw(st.integers(1, len(whole) - 5))
    with pytest.raises(ValueError, match=r"assignment|partitions"):
        parse_assignment(whole[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    try:
        found = parse_assignment(junk)
    except ValueError:
        return
    assert len(found) * 4 <= len(junk)


def test_nothing_is_assigned() -> None:
    assert parse_assignment(b"") == ()
