"""Messages on their way: against real sinks, with a clock that is set."""

from collections.abc import Iterator

import pytest
from django.test import override_settings

from dashboard.alerting import deliveries
from dashboard.alerting.sender import CLAIM, LASTING_ATTEMPTS, RETRY_AFTER_S, Sender
from dashboard.alerting.sources import from_ms
from dashboard.models import AlertChannel, AlertDelivery
from dashboard.services import alerts
from dashboard.services.audit import Actor
from tests.dashboard.alerting.conftest import ManualClock
from tests.support.processes import wait_until
from tests.support.sinks import HttpSink, SmtpSink, http_sink, smtp_sink

pytestmark = pytest.mark.django_db


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as sink:
        yield sink


@pytest.fixture
def mails() -> Iterator[SmtpSink]:
    with (
        smtp_sink() as mails,
        override_settings(EMAIL_HOST="127.0.0.1", EMAIL_PORT=mails.port),
    ):
        yield mails


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def hook(sink: HttpSink, name: str = "hook") -> AlertChannel:
    return AlertChannel.objects.create(
        name=name, kind="webhook", url=sink.url, secret="s", may_reach_private=True
    )


def queue(channel: AlertChannel, clock: ManualClock, event: str = "firing") -> AlertDelivery:
    made = deliveries.enqueue_test(channel, "olga", from_ms(clock.now_ms))
    AlertDelivery.objects.filter(pk=made.pk).update(event=event)
    made.refresh_from_db()
    return made


def test_what_fails_is_tried_again_after_growing_pauses(sink: HttpSink, clock: ManualClock) -> None:
    sink.statuses = [500, 500]
    sender, row = Sender(clock), queue(hook(sink), clock)
    pauses = []
    for _ in range(3):
        sender.attempt(row.pk)
        row.refresh_from_db()
        pauses.append(round((row.next_at.timestamp() * 1000 - clock.now_ms) / 1000))
        clock.now_ms += pauses[-1] * 1000

    assert pauses[:2] == list(RETRY_AFTER_S[:2])
    assert (row.state, row.attempts) == ("sent", 3)
    assert (row.outcome, row.last_failure) == ("It answered 200", "It answered 500")
    assert len({one.headers["X-Odradek-Delivery"] for one in sink.received}) == 1


def test_it_is_given_up_in_the_end(sink: HttpSink, clock: ManualClock) -> None:
    sink.status = 503
    sender, row = Sender(clock), queue(hook(sink), clock)
    for _ in range(20):
        sender.attempt(row.pk)

    row.refresh_from_db()
    assert (row.state, row.attempts) == ("failed", len(RETRY_AFTER_S) + 1)
    assert len(sink.received) == row.attempts


def test_a_refusal_is_given_up_sooner(sink: HttpSink, clock: ManualClock) -> None:
    sink.status = 404
    sender, row = Sender(clock), queue(hook(sink), clock)
    for _ in range(20):
        sender.attempt(row.pk)

    assert len(sink.received) == LASTING_ATTEMPTS


def test_a_test_is_tried_once(sink: HttpSink, clock: ManualClock) -> None:
    sink.status = 503
    sender, row = Sender(clock), queue(hook(sink), clock, "test")
    sender.attempt(row.pk)

    row.refresh_from_db()
    assert (row.state, row.outcome) == ("failed", "It answered 503")


def test_a_claimed_row_is_left_alone_until_its_claimer_must_be_dead(
    sink: HttpSink, clock: ManualClock
) -> None:
    sender, row = Sender(clock), queue(hook(sink), clock)
    AlertDelivery.objects.update(claimed_until=from_ms(clock.now_ms) + CLAIM)
    sender.attempt(row.pk)
    assert sink.received == []

    clock.now_ms += round(CLAIM.total_seconds() * 1000) + 1
    sender.attempt(row.pk)
    assert len(sink.received) == 1


def test_what_waits_for_a_channel_that_is_switched_off_is_dropped(
    sink: HttpSink, clock: ManualClock
) -> None:
    channel = hook(sink)
    row = queue(channel, clock)
    channel.is_on = False
    alerts.save_channel(actor=Actor("olga", "page"), channel=channel)

    row.refresh_from_db()
    assert (row.state, row.outcome) == ("dropped", "The channel was switched off")


@pytest.mark.django_db(transaction=True)
def test_channels_do_not_wait_for_each_other_and_each_keeps_its_order(
    sink: HttpSink, clock: ManualClock
) -> None:
    with http_sink() as broken:
        broken.status = 503
        bad, good = hook(broken, "bad"), hook(sink, "good")
        for channel in (bad, good, bad, good, good):
            queue(channel, clock)
        sender = Sender(clock)

        def good_is_done() -> bool:
            sender.send_due()
            return AlertDelivery.objects.filter(channel=good, state="sent").count() == 3

        wait_until(good_is_done, 30, "the good channel's messages")
        first_bad = AlertDelivery.objects.filter(channel=bad).order_by("pk").first()
        assert first_bad is not None
        wait_until(
            lambda: AlertDelivery.objects.get(pk=first_bad.pk).attempts == 1, 30, "the bad one"
        )
        sender.close()

    uids = AlertDelivery.objects.filter(channel=good).order_by("pk").values_list("uid", flat=True)
    assert [one.json["id"] for one in sink.received] == list(uids)
    assert {one.json["id"] for one in broken.received} == {first_bad.uid}


def test_mail_has_the_words_and_the_same_id_each_time(mails: SmtpSink, clock: ManualClock) -> None:
    channel = AlertChannel.objects.create(
        name="m", kind="email", recipients="a@example.com, b@example.com"
    )
    row = queue(channel, clock)
    Sender(clock).attempt(row.pk)

    row.refresh_from_db()
    assert row.outcome == "The server accepted it for a@example.com, b@example.com"
    (mail,) = mails.mails
    assert mail.recipients == ["a@example.com", "b@example.com"]
    assert mail.message["Message-ID"] == f"<{row.uid}@odradek>"
    assert mail.message["Subject"] == "[Odradek] TEST: m"
    assert "olga tests this channel." in mail.text


def test_recipients_that_are_refused_are_named(mails: SmtpSink, clock: ManualClock) -> None:
    channel = AlertChannel.objects.create(name="m", kind="email", recipients="a@x.com, b@x.com")
    mails.refused = {"b@x.com"}
    row = queue(channel, clock)
    Sender(clock).attempt(row.pk)
    row.refresh_from_db()
    assert row.state == "sent"
    assert "b@x.com (550 no such user here)" in row.outcome

    mails.refused = {"a@x.com", "b@x.com"}
    row = queue(channel, clock)
    Sender(clock).attempt(row.pk)
    row.refresh_from_db()
    assert row.state == "queued"
    assert row.outcome.startswith("Every recipient was refused")


def test_without_a_mail_server_the_words_say_what_to_set(clock: ManualClock) -> None:
    channel = AlertChannel.objects.create(name="m", kind="email", recipients="a@x.com")
    row = queue(channel, clock, "test")
    Sender(clock).attempt(row.pk)

    row.refresh_from_db()
    assert (row.state, row.outcome) == ("failed", "No mail server is configured: set smtp_host")


def test_a_mail_server_that_is_gone_is_tried_again(mails: SmtpSink, clock: ManualClock) -> None:
    channel = AlertChannel.objects.create(name="m", kind="email", recipients="a@x.com")
    row = queue(channel, clock)
    with override_settings(EMAIL_PORT=1):
        Sender(clock).attempt(row.pk)

    row.refresh_from_db()
    assert row.state == "queued"
    assert row.outcome == "The server could not be reached: Connection refused"
