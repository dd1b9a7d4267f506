import pytest

from broker.model.ids import TopicPartition
from dashboard.offset_range import Anchor, Bound
from dashboard.resetting import (
    Kind,
    LogAt,
    Move,
    PlanLine,
    Target,
    parse_iso_duration_ms,
    parse_plan,
    parse_target,
    plan_group,
    render_plan,
)

NOW_MS = 1_800_000_000_000
KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Bound(Anchor.START)),
        ("earliest", Bound(Anchor.START)),
        ("latest", Bound(Anchor.END)),
        ("42", Bound(Anchor.OFFSET, 42)),
        ("-7", Bound(Anchor.FROM_END, 7)),
        ("+7", Bound(Anchor.FROM_START, 7)),
        ("-1h", Bound(Anchor.TIME, NOW_MS - 3_600_000)),
        ("PT1H", Bound(Anchor.TIME, NOW_MS - 3_600_000)),
        ("@1700000000000", Bound(Anchor.TIME, 1_700_000_000_000)),
        ("@-1m", Bound(Anchor.TIME, NOW_MS - 60_000)),
        ("@2026-01-31T10:00:00.500", Bound(Anchor.TIME, 1_769_853_600_500)),
    ],
)
def test_places(text: str, expected: Bound) -> None:
    assert parse_target(text, NOW_MS) == Target(Kind.PLACE, expected)


@pytest.mark.parametrize("text", ["", "here", "1:2", "@1:2", "P", "PT", "-", "1h", "@never", "-1x"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_target(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0s", 0),
        ("-PT1S", -1000),
    ],
)
def test_iso_durations(text: str, expected: int) -> None:
    assert parse_iso_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1H", "PT1D", "P1Y", "PT1.5H", "P1DT"])
def test_what_is_no_iso_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_iso_duration_ms(text)


def test_plans_in_every_form() -> None:
    assert parse_plan('t,0,5\n\n"a, b",t,1,6\nt 1 7\ng\tt\t2\t8\n') == [
        PlanLine(None, KEY, 5),
        PlanLine("a, b", OTHER, 6),
        PlanLine(None, OTHER, 7),
        PlanLine("g", TopicPartition("t", 2), 8),
    ]


def test_a_plan_comes_back_as_it_went() -> None:
    moves = [('g, "x"', Move(KEY, None, 5)), ("h", Move(OTHER, 2, 6))]
    assert parse_plan(render_plan(moves, with_group=True)) == [
        PlanLine(group, move.key, move.new) for group, move in moves
    ]
    assert parse_plan(render_plan(moves, with_group=False)) == [
        PlanLine(None, move.key, move.new) for _, move in moves
    ]


def moved(target: Target, log: LogAt, prior: int | None) -> tuple[int, list[str]]:
    plan = plan_group("g", target, {KEY: log}, {} if prior is None else {KEY: prior})
    (move,) = plan.moves
    return move.new, plan.remarks


def test_offsets_outside_the_log_are_its_ends() -> None:
    log = LogAt(start=5, end=9)
    assert moved(parse_target("7", 0), log, None) == (7, [])
    for text, expected in (("99", 9), ("1", 5)):
        new, (remark,) = moved(parse_target(text, 0), log, None)
        assert new == expected
        assert f"{text} lies" in remark
    assert moved(Target(Kind.SHIFT, count=-9), log, 6)[0] == 5
    # A log that was trimmed since: current is not there any more.
    assert moved(Target(Kind.CURRENT), log, 2)[0] == 5


def test_current_is_the_end_where_nothing_is_committed() -> None:
    assert moved(Target(Kind.CURRENT), LogAt(5, 9), None) == (9, [])
    assert moved(Target(Kind.CURRENT), LogAt(5, 9), 7) == (7, [])


def test_a_time_after_the_last_record_is_the_end() -> None:
    target = parse_target("@-1h", NOW_MS)
    assert moved(target, LogAt(5, 9, at_time=6), None) == (6, [])
    new, (remark,) = moved(target, LogAt(5, 9), None)
    assert new == 9
    assert "no record is as new" in remark


def test_only_what_was_committed_can_be_shifted() -> None:
    logs = {KEY: LogAt(0, 9), OTHER: LogAt(0, 9)}
    plan = plan_group("g", Target(Kind.SHIFT, count=1), logs, {KEY: 3})
    assert plan.moves == [Move(KEY, 3, 4)]
    assert plan.unshiftable == [OTHER]


def test_given_offsets_are_taken() -> None:
    plan = plan_group("g", Target(Kind.GIVEN), {KEY: LogAt(0, 9)}, {KEY: 8}, {KEY: 3})
    assert [(move.new, move.delta) for move in plan.moves] == [(3, -5)]
