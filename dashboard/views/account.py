"""Signing in and out, the own password, and how things are shown."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from dashboard import times
from dashboard.models import User
from dashboard.services import audit

THEMES = ("auto", "light", "dark")


class SignIn(LoginView):
    template_name = "dashboard/login.html"
    redirect_authenticated_user = True


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("login")


class ChangePassword(PasswordChangeView):
    template_name = "dashboard/password_change.html"
    success_url = reverse_lazy("overview")

    def form_valid(self, form: Form) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        user = self.request.user
        assert isinstance(user, User)
        if user.must_change_password:
            user.must_change_password = False
            user.save(update_fields=["must_change_password"])
        audit.record(audit.actor_of(self.request), "user.password", user.username)
        messages.success(self.request, "Password changed.")
        return response


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Theme and time zone, from the menu of every page; back to where it was chosen."""
    user = request.user
    assert isinstance(user, User)
    theme, zone = request.POST.get("theme"), request.POST.get("time_zone")
    if theme in THEMES:
        user.theme = theme
    if zone is not None and times.is_zone(zone):
        user.time_zone = zone
    user.save(update_fields=["theme", "time_zone"])
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = str(reverse_lazy("overview"))
    return redirect(back)
