"""When an alert of one rule fires, is told again, and is resolved. Pure: readings in, effects out.

Rules:
- A target that is bad for ``for_ms`` without a break fires. Time is that of the readings: one
  look, however often it is judged, is one look. After a gap without looks the count starts anew.
- It is resolved once it has been good for ``clear_ms``. Between the two thresholds nothing changes:
  what fires goes on, what does not begins nothing.
- What cannot be seen (no reading at all, or ``UNKNOWN``) neither fires nor resolves.
- A target that fired ``FLAP_LIMIT`` times within an hour is flapping: from then on it has to be
  good for ``FLAP_CLEAR_MS`` before it counts as resolved, which bounds what is told.
- Told once when it fires, again every ``repeat_ms`` while it lasts, and once when it is over, but
  of its end only if it was told that it began. A silence holds back the first two.
- At most ``MAX_OPEN`` targets have an alert of their own; the others are counted in one alert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

MAX_OPEN = 100
OVERFLOW = "(others)"
"""The target that stands for all beyond ``MAX_OPEN``."""
GAP_MS = 180_000
"""Longer than the pause between two ticks while nobody looks."""
FLAP_LIMIT = 3
FLAP_WINDOW_MS = 3_600_000
FLAP_CLEAR_MS = 900_000


class Level(Enum):
    BAD = "bad"
    BETWEEN = "between"
    """Not bad enough to fire, not good enough to resolve."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading:
    target: str
    level: Level
    text: str
    value: float | None = None
    since_ms: int | None = None
    """Bad since then, where the source knows."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One look: whatever is not named is good, or gone, which ends an alert as well."""

    at_ms: int
    readings: Sequence[Reading]


@dataclass(frozen=True, slots=True)
class Policy:
    for_ms: int
    clear_ms: int
    repeat_ms: int
    """0: told once."""


@dataclass(slots=True)
class OpenAlert:
    """Pending until ``fired_ms`` is set."""

    target: str
    since_ms: int
    seen_ms: int
    text: str = ""
    value: float | None = None
    fired_ms: int | None = None
    clear_since_ms: int | None = None
    told_ms: int | None = None
    is_flapping: bool = False


class Event(Enum):
    FIRING = "firing"
    REPEATED = "repeated"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Begin:
    """A first sign: nothing is told yet."""

    target: str

    def __str__(self) -> str:
        return f"begin {self.target}"


@dataclass(frozen=True, slots=True)
class Withdraw:
    """It was over before it fired."""

    target: str

    def __str__(self) -> str:
        return f"withdraw {self.target}"


@dataclass(frozen=True, slots=True)
class Fire:
    target: str

    def __str__(self) -> str:
        return f"fire {self.target}"


@dataclass(frozen=True, slots=True)
class Resolve:
    target: str
    why: str = ""

    def __str__(self) -> str:
        return f"resolve {self.target}"


@dataclass(frozen=True, slots=True)
class Tell:
    target: str
    event: Event

    def __str__(self) -> str:
        return f"tell {self.target} {self.event.value}"


Effect = Begin | Withdraw | Fire | Resolve | Tell


def _never(target: str) -> bool:
    return False


@dataclass(slots=True)
class RuleMachine:
    """All targets of one rule. ``recently_fired``: when, of alerts that are over."""

    policy: Policy
    alerts: dict[str, OpenAlert] = field(default_factory=dict)
    recently_fired: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def on_tick(
        self,
        observed: Observed | None,
        now_ms: int,
        is_silenced: Callable[[str], bool] = _never,
    ) -> list[Effect]:
        """None: the source could not be seen. Effects are to be done in order."""
        effects: list[Effect] = []
        if observed is not None:
            readings = {reading.target: reading for reading in self._bounded(observed.readings)}
            for reading in readings.values():
                if reading.level is Level.BAD:
                    effects += self._on_bad(reading, observed.at_ms)
                elif reading.level is Level.BETWEEN:
                    effects += self._on_between(reading, observed.at_ms)
            for target in [target for target in self.alerts if target not in readings]:
                effects += self._on_good(target, observed.at_ms)
        for alert in self.alerts.values():
            effects += self._tell(alert, now_ms, is_silenced)
        return effects

    def on_switched_off(self, why: str) -> list[Effect]:
        """The rule watches no more."""
        effects: list[Effect] = []
        for target, alert in list(self.alerts.items()):
            effects += self._end(target, why) if alert.fired_ms is not None else [Withdraw(target)]
            self.alerts.pop(target, None)
        return effects

    def _bounded(self, readings: Sequence[Reading]) -> list[Reading]:
        """Known targets first; new ones while there is room; the rest as one."""
        kept, left_over = [], 0
        room = MAX_OPEN - len(self.alerts.keys() - {OVERFLOW})
        for reading in readings:
            if reading.target in self.alerts or reading.level is not Level.BAD:
                kept.append(reading)
            elif room > 0:
                room -= 1
                kept.append(reading)
            else:
                left_over += 1
        if left_over:
            text = f"{left_over} more than are listed one by one"
            kept.append(Reading(OVERFLOW, Level.BAD, text, left_over))
        return kept

    def _on_bad(self, reading: Reading, at_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        since_ms = at_ms if reading.since_ms is None else min(at_ms, reading.since_ms)
        alert = self.alerts.get(reading.target)
        if alert is None:
            alert = OpenAlert(reading.target, since_ms, at_ms)
            self.alerts[reading.target] = alert
            effects.append(Begin(reading.target))
        elif alert.fired_ms is None and at_ms - alert.seen_ms > GAP_MS:
            alert.since_ms = since_ms
        _note(alert, reading, at_ms)
        if alert.fired_ms is None and at_ms - alert.since_ms >= self.policy.for_ms:
            alert.fired_ms = at_ms
            recent = self.recently_fired.get(reading.target, ())
            count = sum(at_ms - fired_ms < FLAP_WINDOW_MS for fired_ms in recent)
            alert.is_flapping = count >= FLAP_LIMIT
            effects.append(Fire(reading.target))
        return effects

    def _on_between(self, reading: Reading, at_ms: int) -> list[Effect]:
        alert = self.alerts.get(reading.target)
        if alert is None:
            return []
        if alert.fired_ms is None:
            del self.alerts[reading.target]
            return [Withdraw(reading.target)]
        _note(alert, reading, at_ms)
        return []

    def _on_good(self, target: str, at_ms: int) -> list[Effect]:
        alert = self.alerts[target]
        if alert.fired_ms is None:
            del self.alerts[target]
            return [Withdraw(target)]
        if alert.clear_since_ms is None:
            alert.clear_since_ms = at_ms
        clear_ms = max(self.policy.clear_ms, FLAP_CLEAR_MS if alert.is_flapping else 0)
        if at_ms - alert.clear_since_ms < clear_ms:
            return []
        return self._end(target, "")

    def _end(self, target: str, why: str) -> list[Effect]:
        alert = self.alerts.pop(target)
        was_told = alert.told_ms is not None
        effects: list[Effect] = [Resolve(target, why)]
        return [*effects, Tell(target, Event.RESOLVED)] if was_told else effects

    def _tell(
        self, alert: OpenAlert, now_ms: int, is_silenced: Callable[[str], bool]
    ) -> list[Effect]:
        if alert.fired_ms is None or alert.clear_since_ms is not None:
            return []
        if alert.told_ms is None:
            event = Event.FIRING
        elif self.policy.repeat_ms and now_ms - alert.told_ms >= self.policy.repeat_ms:
            event = Event.REPEATED
        else:
            return []
        if is_silenced(alert.target):
            return []
        alert.told_ms = now_ms
        return [Tell(alert.target, event)]


def _note(alert: OpenAlert, reading: Reading, at_ms: int) -> None:
    alert.seen_ms, alert.text, alert.value = at_ms, reading.text, reading.value
    alert.clear_since_ms = None
