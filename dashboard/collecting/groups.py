"""Consumer groups of a snapshot: who is in them, what they committed, how far behind they are.

Every broker is asked for the groups that it coordinates, at once, and each within seconds: one that
does not answer leaves its groups as they were, stale since then. Listed groups are then asked about
in small pieces with rests between them, and no longer than a few seconds a tick; with very many
groups the rest follows at the next ticks, those not asked for longest first (``taken_ms`` tells).
Groups without members are asked seldom, since only people move their offsets. Lag is made anew for
all of them at each tick, from the ends of the logs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from broker.clock import Clock, SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, KafkaFailure, OffsetView
from dashboard.collecting.group_memory import (
    Ends,
    GroupLook,
    GroupMemory,
    Probe,
    ends_of,
    memory,
)
from dashboard.gateway import Gateway, OffsetAt
from dashboard.gateway.group_survey import BROKERS_AT_ONCE, VACANT, GroupFacts
from dashboard.groups import CommittedOffset, GroupListing, GroupView
from dashboard.snapshots import ClusterSnapshot, GroupState, TopicState

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 1.5
"""Of one coordinator; all are asked at once."""
TICK_BUDGET_MS: Final = 2_000
PIECE: Final = 50
REST_S: Final = 0.01
"""And at least as long as the piece took."""
VACANT_PAUSE_MS: Final = 60_000
PROBES_PER_TICK: Final = 16
BUILDS_AT_ONCE: Final = 50
"""So many states are made, some milliseconds, before who waits for a page gets the interpreter."""
BUILD_REST_S: Final = 0.005

Facts = Mapping[str, GroupFacts]


def collect_groups(
    gateway: Gateway,
    brokers: Collection[BrokerView],
    topics: Mapping[str, TopicState],
    now_ms: int,
    previous: ClusterSnapshot | None,
    remembered: GroupMemory = memory,
) -> tuple[dict[str, GroupState], int]:
    """The groups, sorted by name, and when they were listed."""
    before = previous.groups if previous is not None else {}
    answers = gateway.group_survey.listings(brokers, ANSWER_TIMEOUT_S)
    listed = {
        one.group: one for found in answers.values() if isinstance(found, list) for one in found
    }
    failures = {
        broker_id: answer for broker_id, answer in answers.items() if not isinstance(answer, list)
    }
    facts, broken = _ask(gateway, brokers, listed, before, now_ms)
    failures |= broken
    looks = [_look(one, facts.get(name), before.get(name), now_ms, failures)
             for name, one in listed.items()]  # fmt: skip
    looks += [
        _carried(state, state.state, state.coordinator, state.stale_since_ms or now_ms,
                 _failure_of(state.coordinator, failures))
        for name, state in before.items()
        if name not in listed and _is_unheard(state.coordinator, failures)
    ]  # fmt: skip
    groups = _states(sorted(looks, key=lambda look: look.group), topics, now_ms, remembered)
    _probe_later(gateway, groups.values(), remembered)
    return groups, now_ms


# Asking


def _ask(
    gateway: Gateway,
    brokers: Collection[BrokerView],
    listed: Mapping[str, GroupListing],
    before: Mapping[str, GroupState],
    now_ms: int,
) -> tuple[dict[str, GroupFacts], dict[int, KafkaFailure]]:
    """What was told within the budget, and which coordinators fell silent."""
    by_id = {broker.broker_id: broker for broker in brokers}
    by_coordinator: dict[int, list[str]] = {}
    for name in _due(listed, before, now_ms):
        coordinator = listed[name].coordinator
        by_coordinator.setdefault(-1 if coordinator is None else coordinator, []).append(name)
    occupied = {name for name, one in listed.items() if one.state != VACANT}
    found: dict[str, GroupFacts] = {}
    failures: dict[int, KafkaFailure] = {}

    def ask(broker_id: int, names: Sequence[str]) -> None:
        try:
            for piece in _paced(gateway, by_id.get(broker_id), names, occupied):
                found.update(piece)
        except KafkaFailure as failure:
            failures[broker_id] = failure

    if by_coordinator:
        with ThreadPoolExecutor(min(len(by_coordinator), BROKERS_AT_ONCE)) as threads:
            list(threads.map(ask, by_coordinator.keys(), by_coordinator.values()))
    return found, failures


def _paced(
    gateway: Gateway,
    coordinator: BrokerView | None,
    names: Sequence[str],
    occupied: Collection[str],
    clock: Clock | None = None,
) -> Iterable[Facts]:
    """Piece after piece with rests, until the budget of a tick is used up."""
    clock = clock or SystemClock()
    started_ms = clock.monotonic_ms()
    asked_ms = started_ms
    for piece in gateway.group_survey.facts(
        coordinator, names, occupied, piece=PIECE, timeout_s=ANSWER_TIMEOUT_S
    ):
        yield piece
        now_ms = clock.monotonic_ms()
        if now_ms - started_ms > TICK_BUDGET_MS:
            return
        time.sleep(max(REST_S, (now_ms - asked_ms) / 1000))
        asked_ms = clock.monotonic_ms()


def _due(
    listed: Mapping[str, GroupListing], before: Mapping[str, GroupState], now_ms: int
) -> list[str]:
    """Whom to ask, the longest not asked first; new ones and those that changed before all."""
    due: list[tuple[int, str]] = []
    for name, one in listed.items():
        known = before.get(name)
        if known is None or known.taken_ms is None or known.state != one.state:
            due.append((0, name))
        elif (
            known.stale_since_ms
            or one.state != VACANT
            or now_ms - known.taken_ms >= VACANT_PAUSE_MS
        ):
            due.append((known.taken_ms, name))
    return [name for _, name in sorted(due)]


# What is made of the answers


def _look(
    listed: GroupListing,
    facts: GroupFacts | None,
    known: GroupState | None,
    now_ms: int,
    failures: Mapping[int, KafkaFailure],
) -> GroupLook:
    """``facts`` None: it was not asked at this tick, or nobody answered."""
    if facts is not None and not isinstance(facts.committed, KafkaFailure):
        view = facts.view
        if not isinstance(view, KafkaFailure):
            return look_of(listed, view, facts.committed, known, now_ms)
    failure: str | None = None
    if facts is not None:
        told = facts.committed if isinstance(facts.committed, KafkaFailure) else facts.view
        failure = str(told)
    elif _is_unheard(listed.coordinator, failures):
        failure = _failure_of(listed.coordinator, failures)
    since_ms = None
    if failure is not None:
        since_ms = (known.stale_since_ms if known is not None else None) or now_ms
    if known is None:
        return replace(_unknown(listed), stale_since_ms=since_ms, failure=failure)
    return _carried(known, listed.state or known.state, listed.coordinator, since_ms, failure)


def look_of(
    listed: GroupListing,
    view: GroupView | None,
    committed: Mapping[TopicPartition, CommittedOffset],
    known: GroupState | None,
    now_ms: int,
) -> GroupLook:
    """A fresh answer. ``view`` None: nobody is a member, so there was nothing to ask."""
    offsets = {key: at.offset for key, at in committed.items()}
    group_type = listed.group_type or (known.group_type if known is not None else None)
    if view is None:
        return GroupLook(
            listed.group, listed.state or VACANT, group_type, listed.coordinator, None, (),
            offsets, now_ms,
        )  # fmt: skip
    coordinator = view.coordinator.broker_id if view.coordinator is not None else None
    return GroupLook(
        listed.group,
        view.state,
        view.group_type or group_type,
        listed.coordinator if coordinator is None else coordinator,
        view.assignor,
        view.members,
        offsets,
        now_ms,
    )


def _carried(
    state: GroupState,
    state_name: str,
    coordinator: int | None,
    stale_since_ms: int | None,
    failure: str | None,
) -> GroupLook:
    """What was known at the last tick, and what the listing tells now."""
    return GroupLook(
        state.group,
        state_name,
        state.group_type,
        coordinator,
        state.assignor,
        state.members,
        {
            TopicPartition(one.topic, one.partition): one.committed_offset
            for one in state.partitions
            if one.committed_offset is not None
        },
        state.taken_ms or 0,
        stale_since_ms,
        failure,
    )


def _unknown(listed: GroupListing) -> GroupLook:
    """Listed, but not asked yet."""
    return GroupLook(
        listed.group, listed.state or "", listed.group_type, listed.coordinator, None, (), {}, 0
    )


def _is_unheard(coordinator: int | None, failures: Mapping[int, KafkaFailure]) -> bool:
    return -1 in failures or coordinator in failures


def _failure_of(coordinator: int | None, failures: Mapping[int, KafkaFailure]) -> str | None:
    failure = failures.get(-1 if coordinator is None else coordinator, failures.get(-1))
    if failure is None:
        return None
    return f"coordinator {coordinator} does not answer: {failure.message}"


def _states(
    looks: Sequence[GroupLook],
    topics: Mapping[str, TopicState],
    now_ms: int,
    remembered: GroupMemory,
) -> dict[str, GroupState]:
    keys = {key for look in looks for key in look.committed}
    keys |= {key for look in looks for member in look.members for key in member.assignment}
    ends: Ends = ends_of(topics, keys)
    remembered.see_ends(keys, ends, now_ms)
    groups = {}
    for place, look in enumerate(looks):
        is_vacant = look.state == VACANT and look.stale_since_ms is None
        is_new = look.taken_ms == now_ms or is_vacant
        groups[look.group] = remembered.state_of(look, ends, now_ms, is_new=is_new)
        if place % BUILDS_AT_ONCE == BUILDS_AT_ONCE - 1:
            time.sleep(BUILD_REST_S)
    remembered.keep_groups(groups)
    return groups


# Records that tell how old the first unread one is

_probing = threading.Lock()


def _probe_later(gateway: Gateway, groups: Iterable[GroupState], remembered: GroupMemory) -> None:
    """In a thread of its own, one at a time: what it finds shows at the next tick."""
    wanted = remembered.wanted_probes(groups, PROBES_PER_TICK)
    if not wanted or not _probing.acquire(blocking=False):
        return

    def read() -> None:
        try:
            probe(gateway, wanted, remembered)
        finally:
            _probing.release()

    threading.Thread(target=read, name="first-records", daemon=True).start()


def probe(gateway: Gateway, wanted: Sequence[Probe], remembered: GroupMemory) -> bool:
    """Read the first unread record of some partitions; whether there is anything new to tell."""
    probes = {one.key: one for one in wanted}
    try:
        found = gateway.first_records({key: one.offset for key, one in probes.items()})
        empty = [key for key, record in found.items() if record is None]
        ends = gateway.offsets(empty, OffsetAt.LATEST) if empty else {}
    except KafkaFailure as failure:
        logger.info("first unread records could not be read: %s", failure)
        return False
    for key, record in found.items():
        if record is not None:
            remembered.learn_record(probes[key], record.offset, record.timestamp_ms)
        elif isinstance(end := ends[key], OffsetView):
            remembered.learn_void(probes[key], end.offset)
    return bool(found)
