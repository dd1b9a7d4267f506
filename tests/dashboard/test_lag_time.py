"""How old an unread record is, from the ends of its log; against logs whose truth is known."""

import random

import pytest

from dashboard.lag_time import MAX_MARKS, AppendTime, EndTrack, Exactness

TICK_MS = 10_000


def test_between_two_sights_of_the_end_it_is_interpolated() -> None:
    track = EndTrack()
    track.see(100, 0)
    track.see(200, TICK_MS)

    assert track.time_of(149) == AppendTime(5_000, Exactness.ABOUT)
    assert track.time_of(199) == AppendTime(TICK_MS, Exactness.ABOUT)


def test_a_quiet_log_moves_the_earliest_time_on() -> None:
    """The end was still 100 at 50 s: the record at 100 came after that, not at 0 s."""
    track = EndTrack()
    for tick in range(6):
        track.see(100, tick * TICK_MS)
    track.see(101, 6 * TICK_MS)

    found = track.time_of(100)
    assert found is not None
    assert 5 * TICK_MS <= found.at_ms <= 6 * TICK_MS


def test_what_is_not_there_yet_has_no_time() -> None:
    track = EndTrack()
    assert track.time_of(0) is None
    track.see(10, 0)
    assert track.time_of(10) is None


def test_what_was_there_before_is_at_least_so_old() -> None:
    track = EndTrack()
    track.see(100, 7_000)

    assert track.time_of(40) == AppendTime(7_000, Exactness.AT_LEAST)


def test_a_record_that_was_read_is_exact_and_helps_its_neighbours() -> None:
    track = EndTrack()
    track.see(100, 100_000)
    track.anchor(40, 40_000)

    assert track.time_of(40) == AppendTime(40_000, Exactness.EXACT)
    assert track.time_of(70) == AppendTime(70_000, Exactness.ABOUT)
    assert track.time_of(39) == AppendTime(100_000, Exactness.AT_LEAST)


def test_a_log_that_begins_anew_forgets_the_old_one() -> None:
    track = EndTrack()
    track.see(100, 0)
    track.anchor(5, -50_000)
    track.see(10, TICK_MS)

    assert track.time_of(5) == AppendTime(TICK_MS, Exactness.AT_LEAST)


@pytest.mark.parametrize("seed", range(20))
def test_the_time_is_never_further_off_than_the_marks_are_apart(seed: int) -> None:
    """A log with a true time for each record, seen each tick for a day; marks stay bounded."""
    chance = random.Random(seed)
    times: list[int] = []
    at_ms = 0
    track = EndTrack()
    track.see(0, 0)
    for tick in range(1, 24 * 360):
        now_ms = tick * TICK_MS
        for _ in range(chance.choice((0, 0, 0, 1, 5))):
            at_ms = chance.randint(max(at_ms, now_ms - TICK_MS), now_ms)
            times.append(at_ms)
        track.see(len(times), now_ms)
    assert len(track) <= MAX_MARKS

    newest = [*range(len(times) - 20, len(times))]
    for offset in [*chance.sample(range(len(times)), 50), *newest]:
        found = track.time_of(offset)
        assert found is not None
        assert found.exactness is Exactness.ABOUT
        error_ms = abs(found.at_ms - times[offset])
        age_ms = times[-1] - times[offset]
        assert error_ms <= max(2 * TICK_MS, age_ms)
        if offset in newest:
            assert error_ms <= TICK_MS
