"""When a leader may answer from its own memory: coordinator requests, acks 0 and 1, latest offsets.

A leader that was replaced does not know it. It may speak for the partition only while every other
member of its maximal ISR has shown within ``lease_ms`` that it still follows this leader epoch: no
other leader can have been chosen but one of those. The evidence in a fetch is not when it arrived
(it may have been under way for long) but when the answer was sent that it acknowledges.

The other half is the promise of a new leader: it holds no lease until ``lease_ms``, and a tenth more
for clocks that run unequally, have passed since it last sent a fetch to anybody.

Alone in the ISR nobody can be chosen but by the store's word, so the store must have confirmed that
within ``lease_ms``.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.ids import BrokerId

#: DESIGN: every other member has fetched within so long.
LEASE_MS = 3_000


def not_before_ms(last_fetch_sent_ms: int, lease_ms: int) -> int:
    """When a new leader may hold its first lease, by its own monotonic clock."""
    return last_fetch_sent_ms + lease_ms + lease_ms // 10


class Lease:
    """All times are of the leader's own monotonic clock."""

    def __init__(self, lease_ms: int, not_before_ms: int) -> None:
        self._lease_ms = lease_ms
        self._not_before_ms = not_before_ms
        self._evidence_ms: dict[BrokerId, int] = {}
        self._confirmed_ms: int | None = None

    def on_evidence(self, follower: BrokerId, answer_sent_ms: int) -> None:
        """``follower`` has received the answer sent then, and still followed after it."""
        known = self._evidence_ms.get(follower)
        if known is None or answer_sent_ms > known:
            self._evidence_ms[follower] = answer_sent_ms

    def on_confirmed(self, asked_ms: int) -> None:
        """The store holds ISR = {this leader}; it was asked then."""
        if self._confirmed_ms is None or asked_ms > self._confirmed_ms:
            self._confirmed_ms = asked_ms

    def is_held(self, others: Iterable[BrokerId], now_ms: int) -> bool:
        """``others``: the maximal ISR without the leader."""
        if now_ms < self._not_before_ms:
            return False
        times = [self._evidence_ms.get(follower) for follower in others] or [self._confirmed_ms]
        return all(time is not None and now_ms - time < self._lease_ms for time in times)
