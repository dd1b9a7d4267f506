"""Brokers whose process is dead are fenced at once, rather than when their session ends.

Evidence is a refusal or a reset on the registered address, never a timeout: a process that is gone
refuses, one that is slow or cut off does not. It must be seen by the controller and by one other
broker, within ``EVIDENCE_MS``, of the same registration. A fenced broker is as if it were not
registered: it leads nothing and leaves every ISR that has another member. It stays fenced until it
registers anew, or answers one of the controller's probes, which come 1 to 60 s apart.

A fence is no more than a registration that is not counted, so a wrong one loses nothing. It lives as
long as the controller's term.

A broker that is about to stop asks for the same (controlled shutdown): its partitions are led by others
and need it no more before it goes, and it is not probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.metadata.image import BrokerImage
from broker.model.ids import BrokerId

EVIDENCE_MS = 2_000
FIRST_PROBE_MS = 1_000
LAST_PROBE_MS = 60_000
NEVER_MS = 1 << 62


class Verdict(Enum):
    NOTHING = "nothing"
    #: Somebody else was refused: the controller is to see for itself.
    PROBE = "probe"
    FENCE = "fence"


@dataclass(slots=True)
class _Suspect:
    broker_epoch: int
    refusals: dict[BrokerId, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Fenced:
    broker_epoch: int
    probe_at_ms: int
    wait_ms: int = FIRST_PROBE_MS


class Fencing:
    """Bounded by the number of registered brokers: only their registrations are suspected."""

    def __init__(self, controller_id: BrokerId) -> None:
        self._controller_id = controller_id
        self._seen: Mapping[BrokerId, BrokerImage] = {}
        self._suspects: dict[BrokerId, _Suspect] = {}
        self._fenced: dict[BrokerId, _Fenced] = {}

    def on_seen(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        """The registrations in the store: what is held against any other one is forgotten."""
        self._seen = brokers
        self._suspects = {b: s for b, s in self._suspects.items() if self._is_of(b, s.broker_epoch)}
        self._fenced = {b: f for b, f in self._fenced.items() if self._is_of(b, f.broker_epoch)}

    def _is_of(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        broker = self._seen.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    def registered(self, broker_id: BrokerId) -> BrokerImage | None:
        """Fenced or not."""
        return self._seen.get(broker_id)

    def counted(self) -> dict[BrokerId, BrokerImage]:
        """The registrations that are not fenced."""
        return {b: broker for b, broker in self._seen.items() if b not in self._fenced}

    def on_refusal(
        self, observer: BrokerId, suspect: BrokerId, broker_epoch: int, now_ms: int
    ) -> Verdict:
        """``observer`` tried the address of that registration, and was refused."""
        is_known = self._is_of(suspect, broker_epoch) and suspect not in self._fenced
        if not is_known or observer == suspect or suspect == self._controller_id:
            return Verdict.NOTHING
        known = self._suspects.setdefault(suspect, _Suspect(broker_epoch))
        known.refusals[observer] = now_ms
        known.refusals = {o: at for o, at in known.refusals.items() if now_ms - at <= EVIDENCE_MS}
        if self._controller_id not in known.refusals:
            return Verdict.PROBE
        if len(known.refusals) < 2:
            return Verdict.NOTHING
        del self._suspects[suspect]
        self._fenced[suspect] = _Fenced(broker_epoch, now_ms + FIRST_PROBE_MS)
        return Verdict.FENCE

    def on_leaving(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """It is about to stop; gives whether its registration counted until now."""
        if not self._is_of(broker_id, broker_epoch) or broker_id in self._fenced:
            return False
        self._fenced[broker_id] = _Fenced(broker_epoch, NEVER_MS)
        return True

    def on_answer(self, broker_id: BrokerId) -> bool:
        """It answered the controller; gives whether it was fenced, and is so no more."""
        self._suspects.pop(broker_id, None)
        fenced = self._fenced.get(broker_id)
        if fenced is not None and fenced.probe_at_ms == NEVER_MS:
            return False  # it has not stopped yet
        return self._fenced.pop(broker_id, None) is not None

    def due_probes(self, now_ms: int) -> list[BrokerId]:
        """Fenced brokers to be tried again now."""
        due = [b for b, fenced in self._fenced.items() if fenced.probe_at_ms <= now_ms]
        for broker_id in due:
            fenced = self._fenced[broker_id]
            fenced.wait_ms = min(2 * fenced.wait_ms, LAST_PROBE_MS)
            fenced.probe_at_ms = now_ms + fenced.wait_ms
        return due
