"""Making, changing, testing and deleting channels."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.forms.alerts import ChannelForm
from dashboard.models import AlertChannel, AlertDelivery, User
from dashboard.permissions import Permission, requires
from dashboard.services import alerts, audit

LAST_COUNT = 10


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_ALERTS)
@never_cache
def create(request: HttpRequest) -> HttpResponse:
    kind = request.GET.get("kind", "")
    if kind not in AlertChannel.Kind.values:
        raise Http404("There is no such kind of channel.")
    return _edit(request, AlertChannel(kind=kind))


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_ALERTS)
@never_cache
def change(request: HttpRequest, pk: int) -> HttpResponse:
    return _edit(request, get_object_or_404(AlertChannel, pk=pk))


def _edit(request: HttpRequest, channel: AlertChannel) -> HttpResponse:
    assert isinstance(request.user, User)
    may_open = alerts.may_open_private(request.user)
    form = ChannelForm(request.POST or None, instance=channel, may_open_private=may_open)
    if request.method == "POST" and form.is_valid():
        try:
            secret = alerts.save_channel(actor=audit.actor_of(request), channel=form.instance)
        except alerts.AlertRefused as error:
            form.add_error(None, str(error))
        else:
            if secret is not None:
                return _secret(request, channel, secret)
            messages.success(request, f"Channel {channel.name} saved.")
            return redirect("alert_channel", channel.pk)
    context = {
        "form": form,
        "channel": channel,
        "has_mail_server": bool(settings.EMAIL_HOST),
        "deliveries": _newest(channel),
        "test": _test_of(request, channel),
    }
    return render(request, "dashboard/alert_channel.html", context)


def _newest(channel: AlertChannel) -> list[AlertDelivery]:
    return list(channel.deliveries.defer("body")[:LAST_COUNT]) if channel.pk else []


def _test_of(request: HttpRequest, channel: AlertChannel) -> AlertDelivery | None:
    pk = request.GET.get("test", "")
    return channel.deliveries.filter(pk=int(pk)).first() if channel.pk and pk.isdecimal() else None


def _secret(request: HttpRequest, channel: AlertChannel, secret: str) -> HttpResponse:
    """The only page that ever holds it: not a redirect, which would have to keep it somewhere."""
    context = {"channel": channel, "secret": secret}
    return render(request, "dashboard/alert_secret.html", context)


@require_POST
@requires(Permission.CHANGE_ALERTS)
@never_cache
def renew_secret(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(AlertChannel, pk=pk, kind=AlertChannel.Kind.WEBHOOK)
    secret = alerts.renew_secret(actor=audit.actor_of(request), channel=channel)
    return _secret(request, channel, secret)


@require_POST
@requires(Permission.CHANGE_ALERTS)
def test(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(AlertChannel, pk=pk)
    delivery = alerts.test_channel(actor=audit.actor_of(request), channel=channel)
    return redirect(f"{reverse('alert_channel', args=[pk])}?test={delivery.pk}#test")


@require_POST
@requires(Permission.CHANGE_ALERTS)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(AlertChannel, pk=pk)
    alerts.delete_channel(actor=audit.actor_of(request), channel=channel)
    messages.success(request, f"Channel {channel.name} deleted.")
    return redirect("alerts")
