"""What alerts are raised by, and what keeps them quiet: the same forms and services as the pages'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.forms import BaseForm
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from ninja import Router, Schema, Status
from pydantic import Field

from dashboard.alerting.defaults import default_values
from dashboard.alerting.kinds import KINDS
from dashboard.api.auth import actor_of, may
from dashboard.api.errors import Invalid
from dashboard.api.shapes import Done, Int64, Milliseconds, Rfc3339, moment_of, responses
from dashboard.forms.alerts import MAX_GLOBS_LENGTH, MAX_SECONDS, PREFIX, RuleForm, SilenceForm
from dashboard.models import AlertChannel, AlertRule, AlertSilence
from dashboard.permissions import Permission
from dashboard.services import alerts as service
from dashboard.times import MAX_MS, to_datetime

router = Router(tags=["Alerts"])
KindName = Annotated[str, Field(pattern=f"^({'|'.join(KINDS)})$")]
Name = Annotated[str, Field(min_length=1, max_length=120)]
Seconds = Annotated[int, Field(ge=0, le=MAX_SECONDS)]
Globs = Annotated[str, Field(max_length=MAX_GLOBS_LENGTH, description="Separated by commas.")]
Id = Annotated[Int64, Field(ge=1, le=2**63 - 1)]
Figures = Annotated[
    dict[str, int], Field(max_length=20, description="By the kind's names; others stay.")
]


class ChannelOut(Schema):
    id: int
    name: str


class RuleOut(Schema):
    """``channels`` empty and ``is_for_all_channels``: everybody is told."""

    id: int
    name: str
    kind: str
    parameters: dict[str, int]
    targets: str
    severity: str
    is_on: bool
    for_seconds: int
    clear_seconds: int
    repeat_minutes: int
    is_for_all_channels: bool
    channels: list[ChannelOut]
    is_built_in: bool = Field(description="Can be switched off, not deleted.")


class RulesOut(Schema):
    rules: list[RuleOut]


class RuleChange(Schema):
    """What is left out stays; of a new rule it is what rules of its kind begin with."""

    name: Name | None = None
    parameters: Figures | None = None
    targets: Globs | None = None
    severity: Literal["info", "warning", "critical"] | None = None
    is_on: bool | None = None
    for_seconds: Seconds | None = None
    clear_seconds: Seconds | None = None
    repeat_minutes: Annotated[int, Field(ge=0, le=MAX_SECONDS // 60)] | None = None
    is_for_all_channels: bool | None = None
    channels: Annotated[list[Id], Field(max_length=service.MAX_CHANNELS)] | None = None


class NewRule(RuleChange):
    kind: KindName
    name: Name


class SilenceOut(Schema):
    """``rule_id`` null: every rule."""

    id: int
    rule_id: int | None
    rule: str | None
    targets: str
    reason: str
    created_by: str
    until_ms: Milliseconds
    until_time: Rfc3339


class SilencesOut(Schema):
    silences: list[SilenceOut]


class NewSilence(Schema):
    rule_id: Id | None = None
    targets: Annotated[str, Field(min_length=1, max_length=MAX_GLOBS_LENGTH)] = "*"
    reason: str = Field(min_length=1, max_length=300)
    until_ms: Annotated[Int64, Field(ge=0, le=MAX_MS)]


@router.get("/alert-rules", auth=may(Permission.SEE), response=responses(RulesOut))
def list_rules(request: HttpRequest):  # type: ignore[no-untyped-def]
    return {"rules": [_rule(rule) for rule in AlertRule.objects.prefetch_related("channels")]}


@router.post("/alert-rules", auth=may(Permission.CHANGE_ALERTS), response=responses(RuleOut, 201))
def create_rule(request: HttpRequest, new: NewRule):  # type: ignore[no-untyped-def]
    rule = AlertRule(**{**default_values(KINDS[new.kind]), "is_on": True})
    return Status(201, _save(request, rule, new))


@router.get("/alert-rules/{int:rule_id}", auth=may(Permission.SEE), response=responses(RuleOut))
def get_rule(request: HttpRequest, rule_id: int):  # type: ignore[no-untyped-def]
    return _rule(get_object_or_404(AlertRule, pk=rule_id))


@router.patch(
    "/alert-rules/{int:rule_id}", auth=may(Permission.CHANGE_ALERTS), response=responses(RuleOut)
)
def change_rule(request: HttpRequest, rule_id: int, wanted: RuleChange):  # type: ignore[no-untyped-def]
    """Switching it off ends what it has open."""
    return _save(request, get_object_or_404(AlertRule, pk=rule_id), wanted)


@router.delete(
    "/alert-rules/{int:rule_id}", auth=may(Permission.CHANGE_ALERTS), response=responses(Done)
)
def delete_rule(request: HttpRequest, rule_id: int):  # type: ignore[no-untyped-def]
    rule = get_object_or_404(AlertRule, pk=rule_id)
    service.delete_rule(actor=actor_of(request), rule=rule)
    return {}


@router.get("/silences", auth=may(Permission.SEE), response=responses(SilencesOut))
def list_silences(request: HttpRequest):  # type: ignore[no-untyped-def]
    """Those that hold; the one that ends first comes first."""
    found = AlertSilence.objects.filter(until__gt=timezone.now()).select_related("rule")
    return {"silences": [_silence(silence) for silence in found]}


@router.post("/silences", auth=may(Permission.CHANGE_ALERTS), response=responses(SilenceOut, 201))
def create_silence(request: HttpRequest, new: NewSilence):  # type: ignore[no-untyped-def]
    """Nothing new is told of what matches until then."""
    until = to_datetime(new.until_ms)
    asked = {"rule": new.rule_id, "targets": new.targets, "reason": new.reason, "until": until}
    form = SilenceForm(asked)
    check_form(form)
    given = form.cleaned_data
    made = service.silence(
        actor=actor_of(request),
        rule=given["rule"],
        targets=given["targets"],
        reason=given["reason"],
        until=until,
    )
    return Status(201, _silence(made))


@router.delete(
    "/silences/{int:silence_id}", auth=may(Permission.CHANGE_ALERTS), response=responses(Done)
)
def end_silence(request: HttpRequest, silence_id: int):  # type: ignore[no-untyped-def]
    found = AlertSilence.objects.filter(until__gt=timezone.now())
    silence = get_object_or_404(found, pk=silence_id)
    service.end_silence(actor=actor_of(request), silence=silence)
    return {}


def _save(request: HttpRequest, rule: AlertRule, wanted: RuleChange) -> dict[str, Any]:
    """By the page's form, which knows what makes sense for the rule's kind."""
    given = wanted.model_dump(exclude_none=True, exclude={"kind", "parameters", "is_on"})
    kind = KINDS[rule.kind]
    known = kind.values(rule.parameters)
    for name in wanted.parameters or {}:
        if name not in known:
            raise Invalid(f"body.parameters.{name}", f"{kind.label} has no figure of this name.")
    figures = {**known, **(wanted.parameters or {})}
    channels = [channel.pk for channel in rule.channels.all()] if rule.pk else []
    now = {name: getattr(rule, name) for name in RuleForm.Meta.fields if name != "channels"}
    figures_in_form = {PREFIX + name: value for name, value in figures.items()}
    form = RuleForm({**now, "channels": channels, **given, **figures_in_form}, instance=rule)
    check_form(form)
    if wanted.is_on is not None:
        form.instance.is_on = wanted.is_on
    chosen: list[AlertChannel] = list(form.cleaned_data["channels"])
    service.save_rule(actor=actor_of(request), rule=form.instance, channels=chosen)
    return _rule(form.instance)


def _where(field: str) -> str:
    """Of the request, that a field of the form was taken from."""
    return f"body.{field}".replace(PREFIX, "parameters.").removesuffix(".__all__")


def check_form(form: BaseForm, where: Callable[[str], str] = _where) -> None:
    """A page's form, filled in by a request. Raises Invalid with what it does not take."""
    for name, errors in form.errors.items():
        raise Invalid(where(name), " ".join(str(error) for error in errors))


def _rule(rule: AlertRule) -> dict[str, Any]:
    same = (
        "id", "name", "kind", "targets", "severity", "is_on", "for_seconds", "clear_seconds",
        "repeat_minutes", "is_for_all_channels",
    )  # fmt: skip
    return {
        **{name: getattr(rule, name) for name in same},
        "parameters": KINDS[rule.kind].values(rule.parameters),
        "channels": [{"id": one.pk, "name": one.name} for one in rule.channels.all()],
        "is_built_in": rule.default_key is not None,
    }


def _silence(silence: AlertSilence) -> dict[str, Any]:
    return {
        "id": silence.pk,
        "rule_id": silence.rule_id,
        "rule": silence.rule.name if silence.rule is not None else None,
        "targets": silence.targets,
        "reason": silence.reason,
        "created_by": silence.created_by_name,
        **moment_of("until", silence.until),
    }
