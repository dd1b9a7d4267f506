"""Questions that one page asks the cluster beyond the snapshot: asked in threads, last answers kept.

No page waits for a broker longer than ``WAIT_S``: it shows the last answer and how old it is, or
that none has come yet, and asks again. That is waited once for a question, however many ask it, and
hardly at all while another one has been without an answer for a second. One question of a kind is under way at a time, ``RUNNING``
of all kinds, and ``KEPT`` answers are remembered: a broker that hangs holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from broker.clock import Clock, SystemClock
from dashboard.cluster import KafkaFailure

T = TypeVar("T")
Key = tuple[str, ...]

WAIT_S = 0.25
SLOW_AFTER_MS = 1_000
HASTY_WAIT_S = 0.05
"""While the cluster is known to be slow: four times what an answer of one that is not takes."""
RUNNING = 8
KEPT = 500

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """``value`` is the last answer that came, however old; ``failure`` why there is no newer."""

    value: T | None = None
    taken_ms: int | None = None
    failure: KafkaFailure | None = None
    is_pending: bool = False


class _Question:
    def __init__(self) -> None:
        self.answer: Answer[Any] = Answer()
        self.done: threading.Event | None = None
        """Set when the question that is under way ends."""
        self.asked_ms = 0
        """When that one began, monotonic."""


class Answers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._questions: OrderedDict[Key, _Question] = OrderedDict()
        self._running = 0

    def ask(
        self, key: Key, question: Callable[[], T], *, max_age_ms: int = 0, wait_s: float = WAIT_S
    ) -> Answer[T]:
        """The answer if it comes in time; one that is at most ``max_age_ms`` old is taken as it is."""
        with self._lock:
            kept = self._kept(key)
            taken_ms = kept.answer.taken_ms
            is_fresh = taken_ms is not None and self._clock.wall_ms() - taken_ms < max_age_ms
            if is_fresh and kept.answer.failure is None:
                return cast("Answer[T]", kept.answer)
            if kept.done is None and self._running < RUNNING:
                kept.done = threading.Event()
                kept.asked_ms = self._clock.monotonic_ms()
                self._running += 1
                threading.Thread(
                    target=self._answer, args=(kept, question), name="question", daemon=True
                ).start()
            done = kept.done
            left_s = self._patience_s(kept, wait_s)
        is_done = done is not None and done.wait(left_s)
        found = kept.answer
        if is_done:
            return cast("Answer[T]", found)
        return Answer(found.value, found.taken_ms, found.failure, is_pending=True)

    def forget(self, *keys: Key) -> None:
        """After a change: what was answered before does not hold any more."""
        with self._lock:
            for key in keys:
                self._questions.pop(key, None)

    def _patience_s(self, kept: _Question, wait_s: float) -> float:
        now_ms = self._clock.monotonic_ms()
        begun = [one.asked_ms for one in self._questions.values() if one.done is not None]
        if begun and now_ms - min(begun) >= SLOW_AFTER_MS:
            wait_s = min(wait_s, HASTY_WAIT_S)
        return max(0.0, wait_s - (now_ms - kept.asked_ms) / 1000)

    def _kept(self, key: Key) -> _Question:
        kept = self._questions.setdefault(key, _Question())
        self._questions.move_to_end(key)
        while len(self._questions) > KEPT:
            self._questions.popitem(last=False)
        return kept

    def _answer(self, kept: _Question, question: Callable[[], Any]) -> None:
        before = kept.answer
        try:
            answer = Answer(question(), self._clock.wall_ms())
        except KafkaFailure as failure:
            answer = Answer(before.value, before.taken_ms, failure)
        except Exception as error:
            logger.exception("a page's question failed")
            unknown = KafkaFailure("UNKNOWN", f"{type(error).__name__}: {error}")
            answer = Answer(before.value, before.taken_ms, unknown)
        with self._lock:
            kept.answer = answer
            assert kept.done is not None
            kept.done.set()
            kept.done = None
            self._running -= 1


answers = Answers(SystemClock())
"""Of this process."""
