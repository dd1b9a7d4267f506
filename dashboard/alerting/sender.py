"""Sends what is queued, in threads of its own: evaluation only ever writes rows.

A row is claimed by compare-and-set, so several processes may send. Of a channel one message at a
time is under way, in the order of the queue; channels do not wait for each other. What fails is
tried again after growing pauses, a bounded number of times, and stays in the log with its reason.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Q

from broker.clock import Clock
from dashboard.alerting import deliveries, mail, webhook
from dashboard.alerting.kinds import globs
from dashboard.alerting.observations import clean
from dashboard.alerting.outcome import Outcome
from dashboard.alerting.sources import from_ms
from dashboard.models import AlertChannel, AlertDelivery

logger = logging.getLogger(__name__)

RETRY_AFTER_S = (2, 5, 15, 60, 300, 900, 1800, 3600)
LASTING_ATTEMPTS = 3
"""Tries where the receiver refuses as such (404, bad address)."""
CLAIM = dt.timedelta(seconds=90)
"""Longer than an attempt can take; a row claimed by a process that died is sent after this."""
WORKERS = 4
BUSY_POLL_S = 1.0
IDLE_POLL_S = 10.0


class Sender:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="alert-sender")
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        """Channels that a thread of ours sends to; a test counts as one of its own."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="alert-sender", daemon=True).start()

    def close(self) -> None:
        """Wait for what is under way, and begin nothing more."""
        self._pool.shutdown()

    def _run(self) -> None:
        is_busy = True
        while True:
            deliveries.bell.wait(BUSY_POLL_S if is_busy else IDLE_POLL_S)
            deliveries.bell.clear()
            try:
                close_old_connections()
                is_busy = self.send_due()
            except Exception:  # the database may be away for a while
                logger.exception("the queue of alert messages could not be read")
                is_busy = False

    def send_due(self) -> bool:
        """Hand over what is due. Returns whether anything waits."""
        now = from_ms(self._clock.wall_ms())
        queued = AlertDelivery.objects.filter(state=AlertDelivery.State.QUEUED)
        rows = list(queued.order_by("pk").only("pk", "channel_id", "event", "next_at"))
        heads: set[int] = set()
        for row in rows:
            is_test = row.event == AlertDelivery.Event.TEST
            lane = -row.pk if is_test else row.channel_id
            if lane in heads:
                continue
            heads.add(lane)
            if row.next_at <= now and self._enter(lane):
                self._pool.submit(self._work, lane, row.pk)
        return bool(rows)

    def _enter(self, lane: int) -> bool:
        with self._lock:
            if lane in self._under_way or len(self._under_way) >= WORKERS:
                return False
            self._under_way.add(lane)
            return True

    def _work(self, lane: int, pk: int) -> None:
        try:
            close_old_connections()
            self.attempt(pk)
        except Exception:
            logger.exception("an alert message could not be sent")
        finally:
            connection.close()
            with self._lock:
                self._under_way.discard(lane)
            deliveries.bell.set()

    def attempt(self, pk: int) -> None:
        """Claim the row and try once, unless somebody else does."""
        now = from_ms(self._clock.wall_ms())
        is_free = Q(claimed_until=None) | Q(claimed_until__lt=now)
        found = AlertDelivery.objects.filter(is_free, pk=pk, state=AlertDelivery.State.QUEUED)
        if not found.update(claimed_until=now + CLAIM):
            return
        delivery = AlertDelivery.objects.select_related("channel").get(pk=pk)
        outcome = self._send(delivery)
        self._note(delivery, outcome)

    def _send(self, delivery: AlertDelivery) -> Outcome:
        channel = delivery.channel
        if channel.kind == AlertChannel.Kind.EMAIL:
            return mail.send(globs(channel.recipients), delivery.body)
        return webhook.send(
            channel.url,
            channel.secret,
            json.dumps(delivery.body, ensure_ascii=False).encode(),
            uid=delivery.uid,
            event=delivery.event,
            may_reach_private=channel.may_reach_private,
            now_ms=self._clock.wall_ms(),
            user_agent=f"Odradek/{settings.ODRADEK_VERSION}",
        )

    def _note(self, delivery: AlertDelivery, outcome: Outcome) -> None:
        now = from_ms(self._clock.wall_ms())
        delivery.attempts += 1
        delivery.claimed_until = None
        delivery.outcome = clean(outcome.words, 500)
        if not outcome.is_sent:
            delivery.last_failure = delivery.outcome
        if outcome.is_sent:
            delivery.state, delivery.finished_at = AlertDelivery.State.SENT, now
        elif delivery.attempts >= _most_attempts(delivery, outcome):
            delivery.state, delivery.finished_at = AlertDelivery.State.FAILED, now
            logger.warning("channel %s: %s", delivery.channel.name, delivery.outcome)
        else:
            pause_s = RETRY_AFTER_S[min(delivery.attempts, len(RETRY_AFTER_S)) - 1]
            delivery.next_at = now + dt.timedelta(seconds=pause_s)
        delivery.save(
            update_fields=[
                "attempts", "claimed_until", "outcome", "last_failure", "state", "finished_at",
                "next_at",
            ]
        )  # fmt: skip


def _most_attempts(delivery: AlertDelivery, outcome: Outcome) -> int:
    if delivery.event == AlertDelivery.Event.TEST:
        return 1
    return LASTING_ATTEMPTS if outcome.is_lasting else len(RETRY_AFTER_S) + 1
