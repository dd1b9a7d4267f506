"""What a leader knows of one follower, from its fetches in this leader epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from broker.model.ids import BrokerId

#: Answers that a follower may still acknowledge.
MAX_ANSWERS = 4

UNKNOWN_OFFSET = -1


class FollowerProgress(NamedTuple):
    """What is told of a follower to whoever asks, on the leader's monotonic clock. None: this leader has not
    seen it, which says nothing of the leaders before."""

    replica_id: BrokerId
    log_end_offset: int
    fetched_ms: int | None
    #: When it was in sync last.
    caught_up_ms: int | None
    #: Since when this leader would have seen it; None: since an unknown time in this leader epoch.
    observed_since_ms: int | None


class Pulse:
    """What each request of a follower's session shows of all that is at rest there: it still follows, and has
    nothing more to acknowledge. So a request costs nothing for partitions where nothing happens."""

    __slots__ = ("answer_sent_ms", "beat_count", "fetched_ms")

    def __init__(self) -> None:
        self.beat_count = 0
        #: When the last request came in.
        self.fetched_ms = 0
        #: When the answer was sent that it showed to have arrived; None: no answer yet.
        self.answer_sent_ms: int | None = None

    def beat(self, now_ms: int, answer_sent_ms: int | None) -> None:
        self.beat_count += 1
        self.fetched_ms = now_ms
        self.answer_sent_ms = answer_sent_ms


@dataclass(slots=True)
class FollowerState:
    """Caught up (as in Kafka): its fetch reached the log end that the leader had at the fetch
    before. So a follower that is always one batch behind a busy leader is in sync, and one that
    stopped is not, however short it lags."""

    #: -1 until it fetched in this epoch, and again when it registers anew.
    log_end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = 0
    #: Numbers of answers and when they were sent.
    answers: dict[int, int] = field(default_factory=dict)
    #: While it is at rest: in sync, at the very end, and every beat is a fetch that was accepted.
    pulse: Pulse | None = None
    #: Its count then: the request that it came to rest with was judged by itself.
    rested_at: int = 0
    #: When this leader epoch began, of those that were assigned then.
    began_ms: int | None = None
    #: The store says that it was in the ISR at that time.
    began_in_sync: bool = False
    #: What it had acknowledged before it went, or registered anew: told to people, good for nothing else.
    end_offset_before: int = UNKNOWN_OFFSET

    def on_fetch(
        self, fetch_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.log_end_offset >= 0 and fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.broker_epoch = broker_epoch
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def rest(self, pulse: Pulse) -> None:
        self.pulse = pulse
        self.rested_at = pulse.beat_count

    def note_pulse(self) -> int | None:
        """Takes over what its beats have shown; gives when the answer was sent that the last one showed to
        have arrived, if there was any."""
        pulse = self.pulse
        if pulse is None or pulse.beat_count == self.rested_at:
            return None
        self.last_fetch_ms = max(self.last_fetch_ms, pulse.fetched_ms)
        self.last_caught_up_ms = max(self.last_caught_up_ms, pulse.fetched_ms)
        return pulse.answer_sent_ms

    def forget_registration(self) -> None:
        """It is gone or registered anew: what it acknowledged before says nothing of it now."""
        if self.log_end_offset != UNKNOWN_OFFSET:
            self.end_offset_before = self.log_end_offset
        self.log_end_offset = UNKNOWN_OFFSET
        self.answers.clear()

    def progress(self, replica_id: BrokerId) -> FollowerProgress:
        """After ``note_pulse``. ``last_caught_up_ms`` is a grace from the start of the epoch on, and evidence
        only beyond that or for whom the store vouches."""
        began_ms = self.began_ms
        has_caught_up = self.began_in_sync or self.last_caught_up_ms > (began_ms or 0)
        end_offset = self.log_end_offset
        return FollowerProgress(
            replica_id,
            self.end_offset_before if end_offset == UNKNOWN_OFFSET else end_offset,
            self.last_fetch_ms or None,
            self.last_caught_up_ms if has_caught_up else None,
            began_ms,
        )

    def note_answer(self, number: int, now_ms: int) -> None:
        self.answers[number] = now_ms
        while len(self.answers) > MAX_ANSWERS:
            del self.answers[min(self.answers)]

    def is_caught_up(self, leader_end_offset: int, lag_max_ms: int, now_ms: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_max_ms
        )
