"""Which cleanup policy and how many in-sync replicas each topic asks for, learnt a few at a time.

A tick asks about topics that are new, and then about those that were asked longest ago, at most
``NEW_PER_TICK`` and ``OLD_PER_TICK`` of them in ``BUDGET_MS``: ten thousand topics are known after
some ticks, and cost the broker next to nothing afterwards. What changes outside is seen after
``RENEW_MS`` and one turn over all topics; what is changed on a page is seen at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.clock import Clock, SystemClock
from dashboard.cluster import ConfigView, KafkaFailure
from dashboard.gateway import Gateway
from dashboard.snapshots import TopicState

KEYS = ("cleanup.policy", "min.insync.replicas")
NEW_PER_TICK = 1000
OLD_PER_TICK = 200
PER_REQUEST = 50
BUDGET_MS = 1000
RENEW_MS = 60_000


class Known(NamedTuple):
    policy: str | None
    min_isr: int
    asked_ms: int


class TopicSettingsWatch:
    """What is known of the topics that are there; the collector's thread applies it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Known] = {}
        self._forgotten: deque[str] = deque()

    def forget(self, name: str) -> None:
        """It was changed here: the next tick asks. From any thread."""
        self._forgotten.append(name)

    def apply(
        self, gateway: Gateway, topics: Mapping[str, TopicState], now_ms: int
    ) -> dict[str, TopicState]:
        """``learn``, and the topics with what is known of them then."""
        self.learn(gateway, topics, now_ms)
        return self.applied(topics)

    def applied(self, topics: Mapping[str, TopicState]) -> dict[str, TopicState]:
        """The topics with what is known of them; asks nobody."""
        return {name: self._applied(topic) for name, topic in topics.items()}

    def learn(self, gateway: Gateway, topics: Mapping[str, TopicState], now_ms: int) -> None:
        """Ask about those that are due. Never fails: what cannot be asked stays as it was."""
        for name in self._known.keys() - topics.keys():
            del self._known[name]
        while self._forgotten:
            self._known.pop(self._forgotten.popleft(), None)
        self._learn(gateway, topics, now_ms)

    def _applied(self, topic: TopicState) -> TopicState:
        known = self._known.get(topic.name)
        if known is None or (topic.cleanup_policy, topic.min_isr) == (known.policy, known.min_isr):
            return topic
        return replace(topic, cleanup_policy=known.policy, min_isr=known.min_isr)

    def _learn(self, gateway: Gateway, topics: Mapping[str, TopicState], now_ms: int) -> None:
        new = [name for name in topics if name not in self._known][:NEW_PER_TICK]
        # Known ones lie in the order in which they were asked.
        old: list[str] = []
        for name, known in self._known.items():
            if len(old) == OLD_PER_TICK or now_ms - known.asked_ms < RENEW_MS:
                break
            old.append(name)
        due = new + old
        end_ms = self._clock.monotonic_ms() + BUDGET_MS
        for start in range(0, len(due), PER_REQUEST):
            if self._clock.monotonic_ms() >= end_ms:
                return
            names = due[start : start + PER_REQUEST]
            try:
                answers = gateway.topic_configs(names, KEYS)
            except KafkaFailure:
                return
            for name, views in answers.items():
                self._known.pop(name, None)
                self._known[name] = _known(views, now_ms)


def _known(views: Sequence[ConfigView] | KafkaFailure, now_ms: int) -> Known:
    """A topic whose settings may not be seen counts as asked, like any other."""
    told = {} if isinstance(views, KafkaFailure) else {view.name: view.value for view in views}
    min_isr = told.get("min.insync.replicas") or "1"
    is_number = min_isr.isascii() and min_isr.isdigit()
    return Known(told.get("cleanup.policy"), int(min_isr) if is_number else 1, now_ms)


watch = TopicSettingsWatch(SystemClock())
"""Of this process."""
