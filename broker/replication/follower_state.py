"""What a leader knows of one follower, from its fetches in this leader epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Answers that a follower may still acknowledge.
MAX_ANSWERS = 4

UNKNOWN_OFFSET = -1


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

    def note_answer(self, number: int, now_ms: int) -> None:
        self.answers[number] = now_ms
        while len(self.answers) > MAX_ANSWERS:
            del self.answers[min(self.answers)]

    def is_caught_up(self, leader_end_offset: int, lag_max_ms: int, now_ms: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_max_ms
        )
