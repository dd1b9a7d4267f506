"""Waiting until partitions have moved: how far it is, and who does not get on.

A replica that has not grown for a while is named, with its broker, since when, and the throttle in
force; when nothing has moved on for as long as the operator has patience, the waiting ends and the move
goes on by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from datetime import datetime

from appliance.failure import ItemError
from appliance.output import format_size
from appliance.session import Session
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import ConfigView, KafkaFailure
from dashboard.gateway import Gateway
from dashboard.move_progress import MoveProgress, Sizes, Waiting

#: Between two looks at what is under way, and at how large replicas are.
LOOK_SECONDS = 0.5
SIZES_SECONDS = 2.0
#: A replica that has not grown for so long is named, and again after so long.
NAMED_AFTER_MS = 10_000
NAMED_AGAIN_MS = 30_000
#: Replicas that are named at a time.
MOST_NAMED = 3
BAR_WIDTH = 24

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

GOES_ON = (
    "It goes on without you: `odradek cluster reassign` shows what is under way,"
    " `odradek cluster reassign --cancel` takes it back."
)


class Waiter:
    def __init__(
        self, session: Session, gateway: Gateway, begun: Collection[TopicPartition]
    ) -> None:
        self._session = session
        self._gateway = gateway
        self._clock = SystemClock()
        self._progress = MoveProgress(begun, self._clock.monotonic_ms())
        self._sizes: Sizes = {}
        self._sized_ms: int | None = None
        self._named_ms: int | None = None
        self._told = -1
        self._is_terminal = sys.stderr.isatty() and not session.is_quiet

    def wait(self, patience_ms: int) -> list[ItemError]:
        """Until all have arrived: no errors; or nothing has moved on for so long."""
        try:
            while not self._has_ended(patience_ms):
                time.sleep(LOOK_SECONDS)
        finally:
            self._clear_line()
        return [self._error(each) for each in self._progress.waiting]

    def _has_ended(self, patience_ms: int) -> bool:
        progress = self._progress
        try:
            self._look()
        except KafkaFailure as failure:
            if not failure.is_transport:
                raise  # else a broker may be on its way back
            if self._clock.monotonic_ms() - progress.moved_ms >= patience_ms:
                raise
            return False
        now_ms = self._clock.monotonic_ms()
        if not progress.left:
            return True
        if now_ms - progress.moved_ms >= patience_ms:
            return True
        self._name_stalled(now_ms)
        return False

    def _look(self) -> None:
        gateway, progress = self._gateway, self._progress
        under_way = gateway.moves.under_way()
        now_ms = self._clock.monotonic_ms()
        left = {key: state for key, state in under_way.items() if key in progress.begun}
        if left and (self._sized_ms is None or now_ms - self._sized_ms >= SIZES_SECONDS * 1000):
            self._sized_ms = now_ms
            concerned = {replica for state in left.values() for replica in state.replicas}
            brokers = [each for each in gateway.brokers() if each.broker_id in concerned]
            self._sizes = gateway.broker_log_sizes(brokers)
        progress.look(left, self._sizes, now_ms)
        self._tell()

    # Words -------------------------------------------------------------------------------------

    def _tell(self) -> None:
        progress = self._progress
        arrived, count = progress.arrived_count, len(progress.begun)
        words = f"{arrived} of {count} partitions have arrived"
        if self._is_terminal:
            size = progress.size_bytes
            share = progress.copied_bytes / size if size else arrived / max(count, 1)
            filled = int(share * BAR_WIDTH)
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            copied = f"{format_size(progress.copied_bytes)} of {format_size(size)}"
            sys.stderr.write(f"\r[{bar}] {words}, {copied}\x1b[K")
            sys.stderr.flush()
        elif arrived != self._told:
            self._session.note(words)
        self._told = arrived

    def _clear_line(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _name_stalled(self, now_ms: int) -> None:
        stalled = self._progress.stalled(now_ms, NAMED_AFTER_MS)
        if not stalled:
            self._named_ms = None
            return
        if self._named_ms is not None and now_ms - self._named_ms < NAMED_AGAIN_MS:
            return
        self._named_ms = now_ms
        self._clear_line()
        for waiting in stalled[:MOST_NAMED]:
            key = waiting.key
            self._session.note(f"{key.topic}:{key.partition} {self._words(waiting)}")
        if len(stalled) > MOST_NAMED:
            self._session.note(f"and {len(stalled) - MOST_NAMED} more replicas")

    def _error(self, waiting: Waiting) -> ItemError:
        subject = {"topic": waiting.key.topic, "partition": waiting.key.partition}
        return ItemError("NOT_MOVED", self._words(waiting), subject, GOES_ON)

    def _words(self, waiting: Waiting) -> str:
        seconds = (self._clock.monotonic_ms() - waiting.since_ms) // 1000
        since = datetime.fromtimestamp(self._clock.wall_ms() / 1000 - seconds).astimezone()
        if waiting.copied is None:
            far = "which does not answer"
        elif waiting.copied >= waiting.size:
            far = f"which has all of {format_size(waiting.size)} and is not in sync"
        else:
            far = f"which has {format_size(waiting.copied)} of {format_size(waiting.size)}"
        throttle = self._throttle(waiting)
        return (
            f"waits for its replica on broker {waiting.broker_id}, {far}; it has not grown since"
            f" {since:%H:%M:%S} ({seconds} s); {throttle or 'no throttle is in force'}"
        )

    def _throttle(self, waiting: Waiting) -> str | None:
        """The one in force for this replica, and where it is set."""
        topic, index = waiting.key
        try:
            lists = _values(self._gateway.topic_configs([topic], None).get(topic))
            state = self._progress.left.get(waiting.key)
            sources = [] if state is None else [r for r in state.replicas if r not in state.adding]
            places = [(FOLLOWER_REPLICAS, FOLLOWER_RATE, waiting.broker_id)]
            places += [(LEADER_REPLICAS, LEADER_RATE, source) for source in sources]
            for named, rate, broker in places:
                listed = lists.get(named, "").split(",")
                if "*" not in listed and f"{index}:{broker}" not in listed:
                    continue
                found = _values(self._gateway.broker_configs([str(broker)]).get(str(broker)))
                if found.get(rate, "").isdigit() and int(found[rate]) < 1 << 62:
                    return (
                        f"{rate} of broker {broker} holds it at {format_size(int(found[rate]))}/s"
                    )
        except KafkaFailure:
            return "its throttle is not known"
        return None


def _values(found: list[ConfigView] | KafkaFailure | None) -> Mapping[str, str]:
    if isinstance(found, KafkaFailure):
        raise found
    return {each.name: each.value for each in found or () if each.value is not None}
