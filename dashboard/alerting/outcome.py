"""What one attempt to send a message came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    is_sent: bool
    words: str
    is_lasting: bool = False
    """Trying again is unlikely to help."""

    @classmethod
    def sent(cls, words: str) -> Outcome:
        return cls(True, words)

    @classmethod
    def failed(cls, words: str) -> Outcome:
        return cls(False, words)

    @classmethod
    def refused(cls, words: str) -> Outcome:
        return cls(False, words, is_lasting=True)
