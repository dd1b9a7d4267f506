"""One's own API tokens: made and shown once, revoked. An admin revokes those of others too."""

from __future__ import annotations

import datetime as dt

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from dashboard.forms.people import NewTokenForm
from dashboard.models import ApiToken, User
from dashboard.permissions import Permission, may
from dashboard.services import api_tokens as service
from dashboard.services import audit


@never_cache
def api_tokens(request: HttpRequest) -> HttpResponse:
    owner = request.user
    assert isinstance(owner, User)
    form = NewTokenForm(request.POST or None, owner=owner)
    shown: dict[str, object] = {"form": form, "now": timezone.now()}
    if request.method == "POST" and form.is_valid():
        days = int(form.cleaned_data["days"])
        try:
            _, shown["made"] = service.make(
                actor=audit.actor_of(request),
                owner=owner,
                name=form.cleaned_data["name"],
                role=form.cleaned_data["role"],
                expires_at=timezone.now() + dt.timedelta(days=days) if days else None,
            )
        except service.TokenRefused as refused:
            form.add_error(None, str(refused))
        else:
            shown["form"] = NewTokenForm(owner=owner)
    shown["tokens"] = ApiToken.objects.filter(owner=owner)[:200]
    return render(request, "dashboard/api_tokens.html", shown)


@require_POST
def api_token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = ApiToken.objects.select_related("owner").filter(pk=pk).first()
    is_own = token is not None and token.owner_id == request.user.pk
    if token is None or not (is_own or may(request.user, Permission.MANAGE_PEOPLE)):
        raise Http404("There is no such token of yours.")
    service.revoke(actor=audit.actor_of(request), token=token)
    messages.success(request, f"The token {token.name} is revoked.")
    return redirect("api_tokens") if is_own else redirect("user", pk=token.owner_id)
