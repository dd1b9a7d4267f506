"""Where a copy goes on, whatever its source says."""

import pytest

from appliance.importing.batches import Ready
from appliance.importing.progress import PartitionCopy, Refused, Verdict, verdict_of
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition


def copy(position: int = 0, *, is_empty: bool = True) -> PartitionCopy:
    return PartitionCopy(TopicPartition("t", 0), "c/t", position, is_empty, first_offset=position)


def ready(base_offset: int, next_offset: int) -> Ready:
    return Ready(bytearray(b"x"), base_offset, next_offset, 1)


def test_an_empty_copy_begins_where_its_source_begins() -> None:
    made = copy()
    made.aim(100, 200)
    assert (made.position, made.lost, made.is_done) == (100, 0, False)
    assert made.start_before(ready(95, 110), 0) == 95  # the batch that holds the first offset


def test_a_copy_goes_on_where_it_ends() -> None:
    made = copy(150, is_empty=False)
    made.aim(100, 200)
    assert made.position == 150
    assert made.start_before(ready(150, 160), 150) is None
    made.on_ready(ready(150, 200))
    assert made.is_done


def test_what_the_source_deleted_before_it_was_copied_is_counted() -> None:
    made = copy(150, is_empty=False)
    made.aim(180, 200)
    assert (made.position, made.lost) == (180, 30)
    assert made.start_before(ready(180, 190), 150) == 180


def test_retention_that_is_faster_than_the_copy() -> None:
    made = copy()
    made.aim(0, 200)
    made.on_ready(ready(0, 50))
    made.is_empty = False
    made.on_out_of_range(120, 300)
    assert (made.position, made.lost) == (120, 70)


def test_a_copy_that_is_adrift_goes_on_where_it_ends_whatever_was_fetched() -> None:
    made = copy()
    made.aim(0, 200)
    made.on_ready(ready(0, 200))
    assert made.is_done
    made.is_adrift = True
    assert (made.is_left, made.is_open) == (True, False)
    made.go_on_from(0, 150)
    assert (made.position, made.is_empty, made.is_left, made.is_open) == (150, False, True, True)
    made.go_on_from(0, 200)
    assert (made.is_left, made.is_done) == (False, True)


def test_what_the_source_deleted_is_counted_once_however_often_the_copy_is_adrift() -> None:
    made = copy(150, is_empty=False)
    made.aim(180, 200)
    made.go_on_from(0, 150)
    assert (made.position, made.lost) == (180, 30)


def test_a_source_that_has_lost_what_was_copied_is_refused() -> None:
    with pytest.raises(Refused, match="lost"):
        copy(150, is_empty=False).aim(0, 149)
    made = copy(150, is_empty=False)
    made.aim(0, 200)
    with pytest.raises(Refused):
        made.on_out_of_range(0, 140)


def test_a_hole_that_no_segment_could_span_makes_the_log_begin_behind_it() -> None:
    made = copy()
    made.aim(0, 1 << 40)
    assert made.start_before(ready(1 << 33, (1 << 33) + 1), 0) == 1 << 33
    assert made.start_before(ready(1000, 1001), 0) is None


def test_errors_that_pass_and_errors_that_stay() -> None:
    assert verdict_of(ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.LOOK_AGAIN
    assert verdict_of(ErrorCode.OFFSET_OUT_OF_RANGE) is Verdict.OUT_OF_RANGE
    assert verdict_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is Verdict.FAILED
