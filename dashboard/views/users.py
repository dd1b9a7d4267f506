"""Users: the list, one of them, and what an admin can do about each."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from dashboard.addresses import is_behind_unknown_proxy
from dashboard.forms.people import ChangeUserForm, NewUserForm
from dashboard.lockout import locks
from dashboard.models import ApiToken, User
from dashboard.permissions import Permission, requires
from dashboard.selectors import people
from dashboard.services import audit
from dashboard.services import users as service


@requires(Permission.MANAGE_PEOPLE)
def users(request: HttpRequest) -> HttpResponse:
    page = request.GET.get("page", "1")
    listed = people.users(
        search=request.GET.get("q", "").strip(),
        sort=request.GET.get("sort", "name"),
        page=int(page) if page.isdecimal() else 1,
    )
    shown = {"listed": listed, "is_behind_unknown_proxy": is_behind_unknown_proxy(request)}
    return render(request, "dashboard/users.html", shown)


@never_cache
@requires(Permission.MANAGE_PEOPLE)
def user_add(request: HttpRequest) -> HttpResponse:
    form = NewUserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made, password = service.add(actor=audit.actor_of(request), **form.cleaned_data)
        except service.UserRefused as refused:
            form.add_error("username", str(refused))
        else:
            return _password_page(request, made, password, is_new=True)
    return render(request, "dashboard/user_add.html", {"form": form})


@requires(Permission.MANAGE_PEOPLE)
def user(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    current = {name: getattr(person, name) for name in service.SETTINGS}
    form = ChangeUserForm(request.POST or None, initial=current)
    if request.method == "POST" and form.is_valid():
        try:
            service.change(actor=audit.actor_of(request), user=person, **form.cleaned_data)
        except service.UserRefused as refused:
            form.add_error(None, str(refused))
        else:
            messages.success(request, f"{person.username} changed.")
            # An admin who changed his own role is signed out by that.
            return redirect("users")
    return render(request, "dashboard/user.html", _shown(person, form))


@never_cache
@require_POST
@requires(Permission.MANAGE_PEOPLE)
def user_password(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    password = service.reset_password(actor=audit.actor_of(request), user=person)
    return _password_page(request, person, password, is_new=False)


@require_POST
@requires(Permission.MANAGE_PEOPLE)
def user_delete(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    if request.POST.get("name") != person.username:
        messages.error(request, "Nothing was deleted: the name was not typed as it is written.")
        return redirect("user", pk=pk)
    try:
        service.delete(actor=audit.actor_of(request), user=person)
    except service.UserRefused as refused:
        messages.error(request, str(refused))
        return redirect("user", pk=pk)
    messages.success(request, f"{person.username} deleted.")
    return redirect("users")


@require_POST
@requires(Permission.MANAGE_PEOPLE)
def user_unlock(request: HttpRequest) -> HttpResponse:
    """A name, an address, or one name from one address."""
    username = request.POST.get("username") or None
    address = request.POST.get("address") or None
    if username is None and address is None:
        messages.error(request, "Neither a name nor an address was given.")
    else:
        service.unlock(actor=audit.actor_of(request), username=username, address=address)
        messages.success(request, f"{username or address} can sign in again.")
    return redirect("users")


def _password_page(
    request: HttpRequest, person: User, password: str, *, is_new: bool
) -> HttpResponse:
    """The answer itself, not a redirect: the password is stored nowhere that it could be read from."""
    shown = {"person": person, "password": password, "is_new": is_new}
    return render(request, "dashboard/user_password.html", shown)


def _shown(person: User, form: ChangeUserForm) -> dict[str, Any]:
    of_person = [lock for lock in locks() if lock.username == person.username]
    tokens = ApiToken.objects.filter(owner=person)[:200]
    return {
        "person": person,
        "form": form,
        "locks": of_person,
        "tokens": tokens,
        "now": timezone.now(),
    }
