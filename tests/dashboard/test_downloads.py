"""Ranges of a file."""

import pytest

from dashboard.downloads import NoSuchRange, chosen_range


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", None),
        ("bytes=0-", (0, 1000)),
        ("bytes=0-0", (0, 1)),
        ("bytes=990-", (990, 10)),
        ("bytes=990-5000", (990, 10)),
        ("bytes=-10", (990, 10)),
        ("bytes=-5000", (0, 1000)),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=0-1,5-6", None),
        ("items=0-1", None),
    ],
)
def test_a_range(text: str, chosen: tuple[int, int] | None) -> None:
    assert chosen_range(text, 1000) == chosen


@pytest.mark.parametrize("text", ["bytes=1000-", "bytes=5000-6000", "bytes=-0"])
def test_a_range_beyond_the_file_is_refused(text: str) -> None:
    with pytest.raises(NoSuchRange):
        chosen_range(text, 1000)
