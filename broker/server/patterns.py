"""Regular expressions of consumer groups (KIP-848), in RE2's syntax.

Whatever a member writes, RE2 takes time in proportion to what it reads, and memory up to a bound.
Patterns are compiled and matched in threads, so that the loop waits for neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from broker.server.background import Threads

from broker.log_limit import caused_by

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: A longer pattern is refused.
MAX_PATTERN_LENGTH: Final = 8192
#: What a compiled pattern may take.
MAX_PATTERN_BYTES: Final = 1 << 20


def compiled(pattern: str) -> Any:
    """Raises ``ValueError`` that says what is wrong."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise ValueError(f"it has more than {MAX_PATTERN_LENGTH} characters")
    return _compiled(pattern)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2  # not before it is needed: a start is mostly imports

    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be read"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(text) from None


def fault_of(pattern: str) -> str | None:
    """Why it is no regular expression; None: it is one."""
    try:
        compiled(pattern)
    except ValueError as error:
        return f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
    return None


def matches(patterns: frozenset[str], names: list[str]) -> dict[str, frozenset[str]]:
    """Of each pattern the names that it matches as a whole."""
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            expression = compiled(pattern)
        except ValueError as error:
            logger.warning(
                "the pattern %r of a group is passed over: %s",
                pattern, error, extra=caused_by("groups"),
            )  # fmt: skip
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(filter(expression.fullmatch, names))
    return found


class PatternMatching:
    """Implements the coordinator's ``PatternMatcher``."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        def then(found: T | None, error: Exception | None) -> None:
            if error is not None:
                logger.error(
                    "what a group needs was not computed", exc_info=error, extra=caused_by("groups")
                )
            done(found)

        self._threads.compute(work, then)

    def match(
        self,
        patterns: frozenset[str],
        names: Iterable[str],
        done: Callable[[Mapping[str, frozenset[str]] | None], None],
    ) -> None:
        def then(found: dict[str, frozenset[str]] | None, error: Exception | None) -> None:
            if error is not None:
                logger.error(
                    "patterns of a group were not matched",
                    exc_info=error,
                    extra=caused_by("groups"),
                )
            done(found)

        self._threads.compute(lambda: matches(patterns, list(names)), then)
