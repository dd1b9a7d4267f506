"""Times as people type and read them."""

import zoneinfo

import pytest
from django.template.loader import render_to_string
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from dashboard import times

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-01-15T12:00", 1768474800000),
        ("2026-01-15 12:00:01", 1768474801000),
        ("2026-01-15T12:00:01.250", 1768474801250),
        ("2026-01-15T12:00:00Z", 1768478400000),
        ("2026-01-15T12:00:00+05:30", 1768458600000),
        ("1768474800123", 1768474800123),
        ("2026-01-15", 1768431600000),
        # 02:30 does not exist in the night when clocks go forward: 03:30 in summer time is meant.
        ("2026-03-29T02:30", 1774747800000),
        # 02:30 comes twice in the night when they go back: the first, in summer time, is meant.
        ("2026-10-25T02:30", 1792888200000),
        ("", None),
    ],
)
def test_what_a_picker_sends_is_read_in_the_chosen_zone(text: str, milliseconds: int) -> None:
    assert times.parse_time(text, BERLIN) == milliseconds


@pytest.mark.parametrize("text", ["soon", "2026-13-01T00:00", "1969-12-31T00:00Z", "12:30", "٣"])
def test_what_is_no_time_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time|is not between|is before"):
        times.parse_time(text, BERLIN)


@given(st.integers(0, times.MAX_MS))
def test_what_rfc_3339_tells_is_read_back(milliseconds: int) -> None:
    text = times.rfc3339(milliseconds)

    assert text is not None
    assert times.parse_time(text) == milliseconds


@given(st.integers(0, times.MAX_MS - 24 * 3600 * 1000))
def test_what_a_picker_shows_is_read_back(milliseconds: int) -> None:
    zone = zoneinfo.ZoneInfo("Asia/Kolkata")

    assert times.parse_time(times.picker_value(milliseconds, zone), zone) == milliseconds


def test_a_picker_shows_and_names_the_chosen_zone() -> None:
    with timezone.override(BERLIN):
        shown = render_to_string(
            "dashboard/parts/time_picker.html",
            {
                "name": "since",
                "label": "From",
                "value": 1768474800000,
                "zone_name": "Europe/Berlin",
            },
        )

    assert 'value="2026-01-15T12:00:00"' in shown
    assert "in Europe/Berlin" in shown


def test_a_time_field_cleans_to_milliseconds() -> None:
    with timezone.override(BERLIN):
        assert times.TimeField().clean("2026-01-15T12:00") == 1768474800000
