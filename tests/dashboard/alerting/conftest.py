"""What the tests of alerts share: a clock that is set, sources that are made up as a tick saw them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from dashboard import leases
from dashboard.alerting.evaluator import evaluate
from dashboard.alerting.kinds import KINDS
from dashboard.alerting.sources import Sources
from dashboard.models import Alert, AlertChannel, AlertDelivery, AlertRule
from dashboard.snapshots import ClusterSnapshot, GroupState

START_MS = 1_800_000_000_000


@dataclass
class ManualClock:
    now_ms: int = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def group(name: str, lag_ms: int | None, lag: int | None = 10) -> GroupState:
    return GroupState(name, "Stable", "classic", 1, "range", 1, ("t",), (), lag, lag_ms)


def snapshot(at_ms: int, *groups: GroupState) -> ClusterSnapshot:
    found = {each.group: each for each in groups}
    return ClusterSnapshot(at_ms, "c1", 1, {}, {}, found, at_ms)


@dataclass
class Evaluation:
    """`see(...)` is one tick of a rule about group lag, a minute after the last."""

    rule: AlertRule
    now_ms: int = START_MS
    holder: str = "me:1"
    sources: Sources = field(default_factory=lambda: Sources(START_MS))

    def see(self, *lagging: str, after_s: int = 60) -> None:
        self.now_ms += after_s * 1000
        groups = [group(name, 120_000) for name in lagging]
        self.evaluate(replace(self.sources, snapshot=snapshot(self.now_ms, *groups)))

    def evaluate(self, sources: Sources) -> None:
        assert leases.hold(leases.ALERTS, self.holder, 30)
        evaluate(replace(sources, now_ms=self.now_ms), self.holder)

    @property
    def told(self) -> list[tuple[str, list[str]]]:
        rows = AlertDelivery.objects.order_by("pk")
        return [(row.event, [alert["target"] for alert in row.body["alerts"]]) for row in rows]

    @property
    def states(self) -> dict[str, str]:
        return {alert.target: alert.state for alert in Alert.objects.order_by("pk")}


@pytest.fixture
def make_rule() -> Callable[..., AlertRule]:
    """Only these rules are on."""
    AlertRule.objects.update(is_on=False)

    def make(kind: str = "group_lag", **values: object) -> AlertRule:
        given = {
            "name": f"rule {AlertRule.objects.count()}",
            "kind": kind,
            "parameters": KINDS[kind].values({}),
            "for_seconds": 0,
            "clear_seconds": 0,
            **values,
        }
        return AlertRule.objects.create(**given)

    return make


@pytest.fixture
def evaluation(make_rule: Callable[..., AlertRule]) -> Evaluation:
    AlertChannel.objects.create(name="hook", kind="webhook", url="http://h/", secret="s")
    return Evaluation(make_rule())
