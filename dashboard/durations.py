"""How long something lasts, in words; pages and commands say it alike. Free of Django, as commands start without it."""

from __future__ import annotations


def in_two_units(seconds: int) -> str:
    """The two largest units: ``3 h 12 min``."""
    for unit, name, below, below_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit:
            rest = seconds % unit // below
            return f"{seconds // unit} {name}" + (f" {rest} {below_name}" if rest else "")
    return f"{seconds} s"
