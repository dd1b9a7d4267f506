"""Why an adoption does not take place."""

from __future__ import annotations


class Refusal(Exception):
    """Nothing was changed. ``hint`` says what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
