"""Where alerts are sent: the same form and services as the pages'. For who may change alerts, as there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router, Schema, Status
from pydantic import Field

from dashboard.api.alert_rules import check_form
from dashboard.api.auth import actor_of, may, person
from dashboard.api.errors import Invalid
from dashboard.api.shapes import Done, Int64, moment_of, responses
from dashboard.forms.alerts import ChannelForm
from dashboard.models import AlertChannel, AlertDelivery
from dashboard.permissions import Permission
from dashboard.services import alerts as service

router = Router(tags=["Alerts"])
LAST_COUNT = 10
Name = Annotated[str, Field(min_length=1, max_length=100)]


class AlertChannelOut(Schema):
    """``address`` of a webhook: without its path, which of many services is all that guards them."""

    id: int
    name: str
    kind: str
    is_on: bool
    address: str | None
    may_reach_private: bool
    recipients: list[str]


class AlertChannelsOut(Schema):
    channels: list[AlertChannelOut]


class MadeChannelOut(AlertChannelOut):
    """``secret`` of a webhook, which its requests are signed with: told here alone; null: as it was."""

    secret: str | None


class SecretOut(Schema):
    secret: str


class ChannelChange(Schema):
    """What is left out stays. ``url`` and ``may_reach_private`` of webhooks, ``recipients`` of e-mail;
    only an admin lets a webhook reach private addresses."""

    name: Name | None = None
    is_on: bool | None = None
    url: Annotated[str, Field(max_length=2000)] | None = None
    may_reach_private: bool | None = None
    recipients: (
        Annotated[list[Annotated[str, Field(max_length=254)]], Field(max_length=50)] | None
    ) = None


class NewChannel(ChannelChange):
    kind: Literal["webhook", "email"]
    name: Name


class DeliveryOut(Schema):
    """A message. ``outcome``: what the last attempt came to, in words."""

    id: int
    event: str
    rule: str
    state: Literal["queued", "sent", "failed", "dropped"]
    attempts: int
    outcome: str
    last_failure: str
    created_ms: Int64 | None
    created_time: str | None
    finished_ms: Int64 | None
    finished_time: str | None


class DeliveriesOut(Schema):
    deliveries: list[DeliveryOut]


@router.get(
    "/alert-channels", auth=may(Permission.CHANGE_ALERTS), response=responses(AlertChannelsOut)
)
def list_channels(request: HttpRequest):  # type: ignore[no-untyped-def]
    return {"channels": [_told(channel) for channel in AlertChannel.objects.all()]}


@router.post(
    "/alert-channels",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(MadeChannelOut, 201),
)
def create_channel(request: HttpRequest, new: NewChannel):  # type: ignore[no-untyped-def]
    return Status(201, _save(request, AlertChannel(kind=new.kind), new))


@router.get(
    "/alert-channels/{int:channel_id}",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(AlertChannelOut),
)
def get_channel(request: HttpRequest, channel_id: int):  # type: ignore[no-untyped-def]
    return _told(get_object_or_404(AlertChannel, pk=channel_id))


@router.patch(
    "/alert-channels/{int:channel_id}",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(MadeChannelOut),
)
def change_channel(request: HttpRequest, channel_id: int, wanted: ChannelChange):  # type: ignore[no-untyped-def]
    """Switched off, it loses what waits for it."""
    return _save(request, get_object_or_404(AlertChannel, pk=channel_id), wanted)


@router.delete(
    "/alert-channels/{int:channel_id}",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(Done),
)
def delete_channel(request: HttpRequest, channel_id: int):  # type: ignore[no-untyped-def]
    channel = get_object_or_404(AlertChannel, pk=channel_id)
    service.delete_channel(actor=actor_of(request), channel=channel)
    return {}


@router.post(
    "/alert-channels/{int:channel_id}/secret",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(SecretOut),
)
def renew_channel_secret(request: HttpRequest, channel_id: int):  # type: ignore[no-untyped-def]
    """Of a webhook. The old one is invalid at once, also for messages that wait."""
    channel = get_object_or_404(AlertChannel, pk=channel_id, kind=AlertChannel.Kind.WEBHOOK)
    return {"secret": service.renew_secret(actor=actor_of(request), channel=channel)}


@router.post(
    "/alert-channels/{int:channel_id}/test",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(DeliveryOut, 201),
)
def test_channel(request: HttpRequest, channel_id: int):  # type: ignore[no-untyped-def]
    """A message now; among the channel's deliveries stands what became of it."""
    channel = get_object_or_404(AlertChannel, pk=channel_id)
    return Status(201, _delivery(service.test_channel(actor=actor_of(request), channel=channel)))


@router.get(
    "/alert-channels/{int:channel_id}/deliveries",
    auth=may(Permission.CHANGE_ALERTS),
    response=responses(DeliveriesOut),
)
def list_channel_deliveries(request: HttpRequest, channel_id: int):  # type: ignore[no-untyped-def]
    """The last ten messages, the newest first."""
    channel = get_object_or_404(AlertChannel, pk=channel_id)
    return {"deliveries": [_delivery(one) for one in channel.deliveries.defer("body")[:LAST_COUNT]]}


def _save(request: HttpRequest, channel: AlertChannel, wanted: ChannelChange) -> dict[str, Any]:
    """By the page's form, which knows what makes sense for the channel's kind."""
    given = wanted.model_dump(exclude_none=True, exclude={"kind"})
    if "recipients" in given:
        given["recipients"] = ", ".join(given["recipients"])
    may_open = service.may_open_private(person(request))
    if given.get("may_reach_private") and not (may_open or channel.may_reach_private):
        raise Invalid("body.may_reach_private", "Only an admin may allow this.")
    now = {name: getattr(channel, name) for name in ChannelForm.Meta.fields}
    form = ChannelForm({**now, **given}, instance=channel, may_open_private=may_open)
    for name in given:
        if name not in form.fields:
            raise Invalid(f"body.{name}", f"A channel of the kind {channel.kind} has none.")
    check_form(form)
    secret = service.save_channel(actor=actor_of(request), channel=form.instance)
    return {**_told(form.instance), "secret": secret}


def _told(channel: AlertChannel) -> dict[str, Any]:
    same = ("id", "name", "kind", "is_on", "may_reach_private")
    return {
        **{name: getattr(channel, name) for name in same},
        "address": service.shown_address(channel.url) if channel.url else None,
        "recipients": [one.strip() for one in channel.recipients.split(",") if one.strip()],
    }


def _delivery(delivery: AlertDelivery) -> dict[str, Any]:
    same = ("id", "event", "state", "attempts", "outcome", "last_failure")
    return {
        **{name: getattr(delivery, name) for name in same},
        "rule": delivery.rule_name,
        **moment_of("created", delivery.created_at),
        **moment_of("finished", delivery.finished_at),
    }
