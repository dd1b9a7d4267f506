"""The rules of lag by table; those named after a Burrow issue are what its users complained of."""

import itertools

import pytest

from dashboard.lag_status import (
    SPACING_MS,
    STALL_AFTER_MS,
    STOP_AFTER_MS,
    WINDOW_SAMPLES,
    LagStatus,
    Sample,
    Window,
    judge,
    severity,
    worst,
)

TICK_MS = 30_000
HOUR_MS = 3_600_000


def window(committed: list[int], ends: list[int], tick_ms: int = TICK_MS) -> Window:
    """A sample each tick."""
    pairs = zip(committed, ends, strict=True)
    return Window(Sample(place * tick_ms, at, end) for place, (at, end) in enumerate(pairs))


CASES = [
    # (what, committed offsets, log ends, a member has the partition, status)
    ("reads along", [10, 20, 30, 40, 50], [12, 21, 33, 41, 52], True, "ok"),
    ("is one record behind at each sample", [9, 19, 29, 39, 49], [10, 20, 30, 40, 50], True, "ok"),
    ("has read everything", [50] * 5, [50] * 5, True, "ok"),
    ("Burrow#38: an idle topic, read to its end long ago", [50] * 20, [50] * 20, False, "ok"),
    ("Burrow#123: no commits, since nothing comes", [7] * 10, [7] * 10, True, "ok"),
    ("Burrow#58: stopped, and the producer goes on", [50] * 5, [50, 60, 70, 80, 90], False, "stop"),
    ("Burrow#126: lag grows without any commit", [50] * 6, [60, 70, 80, 90, 100, 110], False, "stop"),
    ("Burrow#287: the last commit left lag 0", [50] * 5, [50, 90, 90, 90, 90], False, "stop"),
    ("stopped with a rest that nobody adds to", [50] * 5, [60] * 5, False, "stop"),
    ("a member commits nothing new", [50] * 6, [60, 70, 80, 90, 100, 110], True, "stall"),
    ("a member, and records that came just now", [50] * 6, [50, 50, 50, 50, 50, 60], True, "ok"),
    ("nobody there, records came just now", [50] * 6, [50, 50, 50, 50, 50, 60], False, "ok"),
    ("a member between two commits", [50, 50, 60, 60], [60, 70, 80, 90], True, "ok"),
    ("members away for a deployment", [50, 50, 60], [60, 70, 80], False, "ok"),
    ("reads, but ever further behind", [1, 2, 3, 4, 5, 6], [11, 22, 33, 44, 55, 66], True, "warn"),
    ("behind, but catching up", [1, 20, 40, 60, 80, 100], [100, 110, 120, 130, 140, 150], True, "ok"),
    ("behind, steady", [1, 11, 21, 31, 41, 51], [11, 21, 31, 41, 51, 61], True, "ok"),
    ("grew, then fell once", [1, 2, 3, 4, 55, 56], [11, 22, 33, 44, 60, 70], True, "ok"),
    ("went back", [50, 60, 10, 20], [60, 70, 80, 90], True, "rewind"),
    ("went back, and is there again", [50, 60, 10, 61], [60, 70, 80, 90], True, "ok"),
    ("went back, and has read all", [50, 60, 10, 90], [60, 70, 80, 90], True, "ok"),
    ("went back, but to the end of a topic made anew", [50, 60, 3], [60, 70, 5], True, "ok"),
    ("ahead of the end that was seen before it", [50, 62, 71], [60, 60, 70], True, "ok"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("committed", "ends", "has_owner", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_rules(committed: list[int], ends: list[int], has_owner: bool, expected: str) -> None:
    verdict = judge(window(committed, ends), has_owner=has_owner)

    assert verdict.status == expected
    assert bool(verdict.reason) == (expected != "ok")


def test_one_sample_says_nothing_bad() -> None:
    assert judge(window([1], [1_000_000]), has_owner=False).status is LagStatus.OK
    assert judge(Window(), has_owner=False).status is LagStatus.OK


@pytest.mark.parametrize(
    ("has_owner", "limit_ms"), [(False, STOP_AFTER_MS), (True, STALL_AFTER_MS)]
)
def test_patience_ends_at_its_limit(has_owner: bool, limit_ms: int) -> None:
    early = Window([Sample(0, 5, 9), Sample(limit_ms - 1, 5, 9)])
    late = Window([Sample(0, 5, 9), Sample(limit_ms, 5, 9)])

    assert judge(early, has_owner=has_owner).status is LagStatus.OK
    assert judge(late, has_owner=has_owner).status is not LagStatus.OK


def test_a_pause_of_the_collector_is_not_the_consumers() -> None:
    """Everything was read before it; what came may have come just now."""
    after_a_pause = Window([Sample(0, 50, 50), Sample(HOUR_MS, 50, 60)])

    assert judge(after_a_pause, has_owner=True).status is LagStatus.OK


def test_reasons_say_what_was_seen() -> None:
    stopped = judge(window([50] * 5, [50, 1290, 1290, 1290, 1290]), has_owner=False)
    stalled = judge(window([50] * 9, [51] * 9), has_owner=True)
    back = judge(window([50, 60, 10], [60, 70, 80]), has_owner=True)

    assert stopped.reason == (
        "no member reads the partition, nothing new was committed for 90 s while 1\u202f240 records wait"
    )
    assert "committed nothing new for 4 min while 1 record wait" in stalled.reason
    assert back.reason == "the committed offset went back from 60 to 10"


def test_a_window_keeps_so_many_samples_and_no_closer() -> None:
    often = Window(Sample(second * 1000, second, second) for second in range(3600))

    assert len(often) == WINDOW_SAMPLES
    times = [sample.at_ms for sample in often]
    assert times[-1] == 3_599_000
    assert all(after - before >= SPACING_MS for before, after in itertools.pairwise(times[:-1]))


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    one = window([50] * 5, [60] * 5)
    one.add(Sample(1, 50, 60))

    assert list(one) == [Sample(1, 50, 60)]


def test_trend_is_of_the_last_minutes() -> None:
    assert window([0, 0], [0, 300]).trend() == pytest.approx(10.0)
    grew_long_ago = window([0, 0, *[5000] * 20], [0, *[5000] * 21])
    assert grew_long_ago.trend() == pytest.approx(0.0)
    assert window([0], [10]).trend() is None


def test_the_worst_partition_speaks_for_its_group() -> None:
    assert worst(["ok", "stall", "warn", None]) is LagStatus.STALL
    assert worst(["rewind", "stop"]) is LagStatus.STOP
    assert worst([None]) is None
    ranked = sorted(["stop", None, "ok", "stall", "warn", "rewind"], key=severity)
    assert ranked == [None, "ok", "warn", "rewind", "stall", "stop"]
