"""Forms of rules, channels and silences."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils import timezone

from dashboard.alerting import webhook
from dashboard.alerting.kinds import KINDS, globs
from dashboard.models import AlertChannel, AlertRule, AlertSilence

if TYPE_CHECKING:
    _RuleForm = forms.ModelForm[AlertRule]
    _ChannelForm = forms.ModelForm[AlertChannel]
    _SilenceForm = forms.ModelForm[AlertSilence]
else:  # Django's own classes take no parameters
    _RuleForm = _ChannelForm = _SilenceForm = forms.ModelForm

PREFIX = "parameter_"
MAX_SECONDS = 7 * 86400
MAX_GLOBS_LENGTH = 4000
MAX_RECIPIENTS = 50
SILENCE_LENGTHS = {"1": "1 hour", "4": "4 hours", "24": "1 day", "168": "1 week", "": "Until…"}


class RuleForm(_RuleForm):
    """The instance's kind says which figures it asks for."""

    class Meta:
        model = AlertRule
        fields = (
            "name", "severity", "targets", "for_seconds", "clear_seconds", "repeat_minutes",
            "is_for_all_channels", "channels",
        )  # fmt: skip
        labels = {
            "for_seconds": "Fires after it has been so for (seconds)",
            "clear_seconds": "Resolved after it has been over for (seconds)",
            "repeat_minutes": "Notified again while it lasts, every (minutes)",
            "is_for_all_channels": "Notify every channel",
            "channels": "Or only these channels",
        }
        help_texts = {"repeat_minutes": "0: notified once."}
        widgets = {"targets": forms.TextInput(), "channels": forms.CheckboxSelectMultiple()}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind = KINDS[self.instance.kind]
        self.parameter_names = [PREFIX + parameter.name for parameter in kind.parameters]
        values = kind.values(self.instance.parameters)
        for parameter in kind.parameters:
            self.fields[PREFIX + parameter.name] = forms.IntegerField(
                label=parameter.label,
                min_value=parameter.minimum,
                max_value=parameter.maximum,
                initial=values[parameter.name],
                help_text=parameter.help_text,
            )
        for name, most in (("for_seconds", MAX_SECONDS), ("clear_seconds", MAX_SECONDS)):
            self.fields[name] = forms.IntegerField(
                label=self.fields[name].label, min_value=0, max_value=most
            )
        self.fields["repeat_minutes"].widget.attrs["max"] = str(MAX_SECONDS // 60)
        if kind.target_noun:
            self.fields["targets"].label = f"Which {kind.target_noun}s"
            self.fields[
                "targets"
            ].help_text = "Names or patterns such as orders-*, separated by commas; * is all."
        else:
            del self.fields["targets"]
        self.order_fields(["name", "severity", "targets", *self.parameter_names])

    def clean_targets(self) -> str:
        found = globs(str(self.cleaned_data["targets"]))
        if len(", ".join(found)) > MAX_GLOBS_LENGTH:
            raise ValidationError("That is too long.")
        return ", ".join(found) or "*"

    def clean_repeat_minutes(self) -> int:
        return min(int(self.cleaned_data["repeat_minutes"]), MAX_SECONDS // 60)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if cleaned is not None:
            self.instance.parameters = {
                name.removeprefix(PREFIX): cleaned[name]
                for name in self.parameter_names
                if name in cleaned
            }
        return cleaned


class ChannelForm(_ChannelForm):
    class Meta:
        model = AlertChannel
        fields = ("name", "url", "may_reach_private", "recipients", "is_on")
        labels = {
            "url": "Address",
            "may_reach_private": "May reach private addresses (this machine, the local network)",
            "recipients": "Recipients",
            "is_on": "On",
        }
        help_texts = {
            "url": "http:// or https://; receives a POST with JSON.",
            "recipients": "E-mail addresses, separated by commas.",
        }
        widgets = {"recipients": forms.TextInput()}

    def __init__(self, *args: Any, may_open_private: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.kind == AlertChannel.Kind.EMAIL:
            del self.fields["url"], self.fields["may_reach_private"]
            self.fields["recipients"].required = True
        else:
            del self.fields["recipients"]
            self.fields["url"].required = True
            if not may_open_private and not self.instance.may_reach_private:
                self.fields["may_reach_private"].disabled = True
                self.fields["may_reach_private"].help_text = "Only an admin may allow this."

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"]).strip()
        try:
            webhook.parse(url)
        except webhook.BadAddress as error:
            raise ValidationError(str(error)) from None
        return url

    def clean_recipients(self) -> str:
        found = globs(str(self.cleaned_data["recipients"]))
        if not 0 < len(found) <= MAX_RECIPIENTS:
            raise ValidationError(f"One to {MAX_RECIPIENTS} addresses, please.")
        for address in found:
            try:
                validate_email(address)
            except ValidationError:
                raise ValidationError(f"{address} is not an e-mail address.") from None
        return ", ".join(found)


class SilenceForm(_SilenceForm):
    hours = forms.ChoiceField(
        label="For", choices=list(SILENCE_LENGTHS.items()), required=False, initial="1"
    )
    until = forms.DateTimeField(
        label="Until, when chosen above",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )

    class Meta:
        model = AlertSilence
        fields = ("rule", "targets", "hours", "until", "reason")
        labels = {"rule": "Rule", "targets": "Targets", "reason": "Reason"}
        help_texts = {
            "targets": "Names or patterns such as orders-*; * is every target of the rule."
        }
        widgets = {"targets": forms.TextInput()}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rule = self.fields["rule"]
        assert isinstance(rule, forms.ModelChoiceField)
        rule.empty_label = "Every rule"

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        if hours := cleaned.get("hours"):
            cleaned["until"] = timezone.now() + dt.timedelta(hours=int(hours))
        if not self.errors and cleaned.get("until") is None:
            self.add_error("until", "Until when?")
        return cleaned
