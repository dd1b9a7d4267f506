"""What to look for in the audit log; comes from the address, so that a search can be shared."""

from __future__ import annotations

from django import forms

from dashboard.models import AuditEntry
from dashboard.times import TimeField


class AuditSearchForm(forms.Form):
    q = forms.CharField(label="Search", max_length=200, required=False)
    who = forms.CharField(max_length=150, required=False)
    action = forms.CharField(label="What", max_length=64, required=False)
    target = forms.CharField(max_length=512, required=False)
    source = forms.ChoiceField(
        label="Through", choices=[("", "any"), *AuditEntry.Source.choices], required=False
    )
    since = TimeField(label="From", required=False)
    until = TimeField(label="Until", required=False)
    refused = forms.BooleanField(label="Only refused", required=False)
