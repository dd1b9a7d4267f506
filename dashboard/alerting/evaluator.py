"""One look at all rules: readings into each rule's machine, its effects into the database.

The rows are the memory: machines are built from them and thrown away again, so a restart, or
another process that takes the lease, goes on where the last tick ended. What a rule's tick changed
and what is to be told of it stand in one transaction, which begins by renewing the lease.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from django.db import transaction

from dashboard import leases
from dashboard.alerting import deliveries
from dashboard.alerting.kinds import KINDS
from dashboard.alerting.machine import (
    FLAP_WINDOW_MS,
    Begin,
    Effect,
    Event,
    Fire,
    OpenAlert,
    Policy,
    Resolve,
    RuleMachine,
    Tell,
    Withdraw,
)
from dashboard.alerting.observations import matcher, observe
from dashboard.alerting.sources import Sources, from_ms, to_ms
from dashboard.models import Alert, AlertDelivery, AlertRule, AlertSilence

logger = logging.getLogger(__name__)

LEASE_S = 30.0
OPEN_STATES = (Alert.State.PENDING, Alert.State.FIRING)


class LeaseLost(Exception):
    """Somebody else evaluates now."""


def evaluate(sources: Sources, holder: str) -> None:
    """Every rule once. Raises LeaseLost before anything is written that somebody else writes."""
    now = from_ms(sources.now_ms)
    rules = AlertRule.objects.prefetch_related("channels")
    open_rows: dict[int | None, list[Alert]] = defaultdict(list)
    for row in Alert.objects.filter(state__in=OPEN_STATES).order_by("pk"):
        open_rows[row.rule_id].append(row)
    recent = _recently_fired(now)
    silences = list(AlertSilence.objects.filter(until__gt=now))
    for rule in rules:
        tick = _RuleTick(rule, open_rows.get(rule.pk, []), recent[rule.pk], sources, holder)
        try:
            tick.run(silencer(rule, silences))
        except LeaseLost:
            raise
        except Exception:  # one rule's trouble is not the others'
            logger.exception("rule %r could not be evaluated", rule.name)


def switch_off(rule: AlertRule, why: str, now_ms: int) -> None:
    """End what the rule has open, after the caller's transaction has changed the rule."""
    rows = list(Alert.objects.filter(rule=rule, state__in=OPEN_STATES).order_by("pk"))
    tick = _RuleTick(rule, rows, {}, Sources(now_ms), "")
    tick.write(tick.machine.on_switched_off(why))


def silencer(rule: AlertRule, silences: Iterable[AlertSilence]) -> Callable[[str], bool]:
    """Whether a target of this rule is silenced."""
    found = [matcher(silence.targets) for silence in silences if silence.rule_id in (None, rule.pk)]
    return lambda target: any(matches(target) for matches in found)


def _recently_fired(now: dt.datetime) -> dict[int, dict[str, list[int]]]:
    since = now - dt.timedelta(milliseconds=FLAP_WINDOW_MS)
    rows = Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__gte=since)
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rule_id, target, fired_at in rows.values_list("rule_id", "target", "fired_at"):
        if rule_id is not None and fired_at is not None:
            found[rule_id][target].append(to_ms(fired_at))
    return found


@dataclass(slots=True, init=False)
class _RuleTick:
    """One rule, one tick: its machine, and the rows behind the machine's alerts."""

    rule: AlertRule
    rows: dict[str, Alert]
    sources: Sources
    holder: str
    machine: RuleMachine
    ended: dict[str, Alert]

    def __init__(
        self,
        rule: AlertRule,
        rows: Sequence[Alert],
        recent: dict[str, list[int]],
        sources: Sources,
        holder: str,
    ) -> None:
        self.rule, self.sources, self.holder = rule, sources, holder
        self.rows = {row.target: row for row in rows}
        self.ended = {}
        policy = Policy(
            rule.for_seconds * 1000, rule.clear_seconds * 1000, rule.repeat_minutes * 60_000
        )
        alerts = {row.target: _open_alert(row) for row in rows}
        self.machine = RuleMachine(policy, alerts, recent)

    def run(self, is_silenced: Callable[[str], bool]) -> None:
        rule = self.rule
        if rule.is_on:
            values = KINDS[rule.kind].values(rule.parameters)
            observed = observe(rule.kind, self.sources, values, rule.targets)
            effects = self.machine.on_tick(observed, self.sources.now_ms, is_silenced)
        else:
            effects = self.machine.on_switched_off("the rule was switched off")
        if not effects and not self.rows:
            return
        with transaction.atomic():
            if not leases.renew(leases.ALERTS, self.holder, LEASE_S):
                raise LeaseLost
            # The row is locked until the end; a rule that was changed meanwhile is left alone.
            unchanged = AlertRule.objects.filter(pk=rule.pk, version=rule.version)
            if unchanged.update(version=rule.version):
                self.write(effects)

    def write(self, effects: Sequence[Effect]) -> None:
        told: dict[Event, list[Alert]] = defaultdict(list)
        for effect in effects:
            match effect:
                case Begin(target):
                    self.rows[target] = self._new_row(target)
                case Withdraw(target):
                    row = self.rows.pop(target)
                    if row.pk is not None:
                        row.delete()
                case Fire(target):
                    logger.warning("firing: %s: %s", self.rule.name, target)
                case Resolve(target, why):
                    self._resolve(self.rows.pop(target), why)
                case Tell(target, event):
                    row = self.ended.get(target) or self.rows[target]
                    told[event].append(row)
                case _:
                    assert_never(effect)
        for target, row in self.rows.items():
            _copy(self.machine.alerts[target], row)
            row.save()
        now = from_ms(self.sources.now_ms)
        snapshot = self.sources.snapshot
        cluster_id = snapshot.cluster_id if snapshot is not None else None
        for event, alerts in told.items():
            deliveries.announce(
                self.rule, AlertDelivery.Event(event.value), alerts, cluster_id, now
            )

    def _new_row(self, target: str) -> Alert:
        rule = self.rule
        return Alert(
            rule=rule,
            rule_name=rule.name,
            kind=rule.kind,
            severity=rule.severity,
            target=target,
            state=Alert.State.PENDING,
        )

    def _resolve(self, row: Alert, why: str) -> None:
        row.state = Alert.State.RESOLVED
        row.resolved_at = from_ms(self.sources.now_ms)
        row.resolution = why
        row.save()
        self.ended[row.target] = row
        logger.warning("resolved: %s: %s", row.rule_name, row.target)


def _open_alert(row: Alert) -> OpenAlert:
    return OpenAlert(
        row.target,
        to_ms(row.since),
        to_ms(row.seen_at),
        row.text,
        row.value,
        to_ms(row.fired_at) if row.fired_at else None,
        to_ms(row.clear_since) if row.clear_since else None,
        to_ms(row.told_at) if row.told_at else None,
        row.is_flapping,
    )


def _copy(alert: OpenAlert, row: Alert) -> None:
    row.since, row.seen_at = from_ms(alert.since_ms), from_ms(alert.seen_ms)
    row.text, row.value = alert.text[:500], alert.value
    row.is_flapping = alert.is_flapping
    if alert.fired_ms is not None:
        row.state, row.fired_at = Alert.State.FIRING, from_ms(alert.fired_ms)
    row.clear_since = from_ms(alert.clear_since_ms) if alert.clear_since_ms is not None else None
    row.told_at = from_ms(alert.told_ms) if alert.told_ms is not None else None
