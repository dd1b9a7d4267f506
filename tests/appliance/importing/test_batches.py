"""What becomes of a source's bytes: whole batches, producers that are nobody here, sums that hold."""

import pytest

from appliance.importing.batches import FOREIGN_PRODUCER, is_part_of_one, make_ready
from broker.records.header import MalformedBatch, compute_crc, walk_headers
from tests.support import record_batches


def batch(base_offset: int, count: int = 2, **more: int) -> bytes:
    values = [b"v%d" % number for number in range(count)]
    return record_batches.batch(values, base_offset=base_offset, **more)


def test_batches_without_a_producer_stay_as_they_are() -> None:
    data = batch(10) + batch(12)
    ready = make_ready(data, 10, 100)
    assert bytes(ready.data) == data
    assert (ready.base_offset, ready.next_offset, ready.record_count) == (10, 14, 4)


def test_a_producer_gets_an_id_that_no_cluster_gives_out() -> None:
    data = batch(0, producer_id=7, producer_epoch=1, base_sequence=0)
    ready = make_ready(data, 0, 100)
    ((_, header),) = walk_headers(ready.data)
    assert header.producer_id == 7 | FOREIGN_PRODUCER
    assert header.crc == compute_crc(ready.data, 0, len(ready.data))
    assert bytes(make_ready(bytes(ready.data), 0, 100).data) == ready.data


def test_what_was_copied_before_and_what_lies_behind_the_end_is_left_out() -> None:
    ready = make_ready(batch(0) + batch(2) + batch(4) + batch(6), 2, 6)
    assert [header.base_offset for _, header in walk_headers(ready.data)] == [2, 4]
    assert ready.next_offset == 6


def test_a_batch_around_the_position_is_taken_whole() -> None:
    ready = make_ready(batch(5, 10), 9, 100)
    assert (ready.base_offset, ready.next_offset) == (5, 15)


def test_a_part_of_a_batch_at_the_end_is_fetched_again() -> None:
    data = batch(0) + batch(2)[:-1]
    assert make_ready(data, 0, 100).next_offset == 2
    assert not is_part_of_one(data)
    assert is_part_of_one(batch(2)[:-1])
    assert not make_ready(batch(2)[:-1], 2, 100).data


def test_damage_is_refused() -> None:
    data = bytearray(batch(0))
    data[-1] ^= 1
    with pytest.raises(MalformedBatch, match="sum"):
        make_ready(bytes(data), 0, 100)


def test_old_formats_are_named() -> None:
    data = bytearray(batch(0))
    data[16] = 1
    with pytest.raises(MalformedBatch, match=r"0\.11"):
        make_ready(bytes(data), 0, 100)
