"""The reset form: what it takes, and what it says otherwise."""

import zoneinfo

import pytest
from django.utils import timezone

from dashboard.offset_range import Anchor, Bound
from dashboard.resetting import Kind, Target
from dashboard.selectors.group_reset import ResetRequest
from dashboard.views.group_forms import ResetForm, parse_partitions

NOW_MS = 1_800_000_000_000
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def request(**data: str) -> ResetRequest:
    form = ResetForm({"scope": "all", **data})
    assert form.is_valid(), form.errors
    return form.request("g", NOW_MS)


def errors(**data: str) -> dict[str, list[str]]:
    form = ResetForm({"scope": "all", **data})
    assert not form.is_valid()
    return {name: list(map(str, found)) for name, found in form.errors.items()}


@pytest.mark.parametrize(
    ("data", "target"),
    [
        ({"to": "earliest"}, Target(Kind.PLACE, Bound(Anchor.START))),
        ({"to": "latest"}, Target(Kind.PLACE, Bound(Anchor.END))),
        ({"to": "offset", "offset": "42"}, Target(Kind.PLACE, Bound(Anchor.OFFSET, 42))),
        ({"to": "offset", "offset": str(2**63 - 1)}, Target(Kind.PLACE, Bound(Anchor.OFFSET, 2**63 - 1))),
        ({"to": "shift", "shift": "-100"}, Target(Kind.SHIFT, count=-100)),
        ({"to": "duration", "duration": "1h30m"}, Target(Kind.PLACE, Bound(Anchor.TIME, NOW_MS - 5_400_000))),
        ({"to": "duration", "duration": "P1DT1H"}, Target(Kind.PLACE, Bound(Anchor.TIME, NOW_MS - 90_000_000))),
        ({"to": "group", "source": " other "}, Target(Kind.GIVEN)),
    ],
)  # fmt: skip
def test_places(data: dict[str, str], target: Target) -> None:
    assert request(**data).target == target


def test_a_time_is_of_the_zone_that_was_chosen() -> None:
    with timezone.override(BERLIN):
        target = request(to="time", time="2026-07-01T12:00:00").target
    assert target.time_ms == 1_782_900_000_000


@pytest.mark.parametrize("time", ["2026-03-29T02:30:00", "2026-10-25T02:30:00"])
def test_a_time_that_is_not_or_is_twice_is_refused(time: str) -> None:
    with timezone.override(BERLIN):
        assert "interpreted" in errors(to="time", time=time)["time"][0]


def test_scopes() -> None:
    assert request(to="earliest", topic="t", partitions="0") == ResetRequest(
        "g", Target(Kind.PLACE, Bound(Anchor.START))
    )
    topic = ResetForm({"scope": "topic", "topic": "t", "to": "latest"})
    assert topic.is_valid()
    assert topic.request("g", NOW_MS).topic == "t"
    some = ResetForm({"scope": "partitions", "topic": "t", "partitions": "0, 3-5", "to": "latest"})
    assert some.is_valid()
    assert some.request("g", NOW_MS).partitions == {0, 3, 4, 5}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"to": "offset"}, "offset"),
        ({"to": "offset", "offset": "-1"}, "offset"),
        ({"to": "offset", "offset": "1.5"}, "offset"),
        ({"to": "time"}, "time"),
        ({"to": "duration", "duration": "soon"}, "duration"),
        ({"to": "shift"}, "shift"),
        ({"to": "group"}, "source"),
        ({"to": "moon"}, "to"),
        ({"to": "earliest", "scope": "topic"}, "topic"),
        ({"to": "earliest", "scope": "partitions", "topic": "t"}, "partitions"),
        ({"to": "earliest", "scope": "partitions", "topic": "t", "partitions": "x"}, "partitions"),
    ],
)
def test_what_is_missing_is_said_at_its_field(data: dict[str, str], field: str) -> None:
    assert list(errors(**data)) == [field]


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "5-3", "0-99999999", "1,,2", "¹"])
def test_what_is_no_list_of_partitions(text: str) -> None:
    with pytest.raises(ValueError, match="partition"):
        parse_partitions(text)
