"""Users: a new one, and what can be changed of one."""

from __future__ import annotations

from typing import Any

from django import forms

from dashboard.models import Role, User

_READABLE = (
    "Names or patterns separated by commas, such as orders-*, audit. * is all; empty is none."
)
_EXPORTABLE = "Of the readable ones. Admins read and export everything."


class UserSettingsForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)
    readable_topics = forms.CharField(
        label="Topics whose records may be read",
        max_length=4000,
        required=False,
        initial="*",
        help_text=_READABLE,
    )
    exportable_topics = forms.CharField(
        label="Topics whose records may be exported",
        max_length=4000,
        required=False,
        initial="*",
        help_text=_EXPORTABLE,
    )


class NewUserForm(UserSettingsForm):
    username = forms.CharField(
        label="Name",
        max_length=150,
        validators=[User.username_validator],
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )
    field_order = ("username", "role", "readable_topics", "exportable_topics")


class ChangeUserForm(UserSettingsForm):
    is_active = forms.BooleanField(label="May sign in", required=False)


class NewTokenForm(forms.Form):
    name = forms.CharField(
        max_length=100, help_text="What it is for, such as the program that will use it."
    )
    role = forms.ChoiceField(help_text="At most your own; it shrinks when yours does.")
    days = forms.ChoiceField(
        label="Expires",
        choices=[("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year"), ("0", "never")],
        initial="90",
    )

    def __init__(self, *args: Any, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        roles = Role.choices[: Role.values.index(owner.role) + 1]
        field = self.fields["role"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = roles
