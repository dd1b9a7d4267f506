"""One import, from what is asked for to what is told of it."""

from __future__ import annotations

import asyncio
import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from appliance.failure import CommandError, ItemError
from appliance.importing import offsets, topics
from appliance.importing.copying import Copying
from appliance.importing.here import Here, NotNow, Position
from appliance.importing.ledger import Ledger
from appliance.importing.patience import PAUSE_S, Patience, passes
from appliance.importing.progress import PartitionCopy, Refused
from appliance.importing.spool import Spool
from appliance.importing.topics import TopicPlan
from broker.clock import Clock
from broker.model.ids import TopicPartition
from broker.model.internal_topics import is_internal
from dashboard.cluster import ClusterView, KafkaFailure, OffsetView, TopicView
from dashboard.gateway import Gateway, OffsetAt
from dashboard.gateway.batch_reader import BatchReader

#: The second takes what came while the first one ran.
ROUNDS: Final = 2


@dataclass(slots=True)
class Wish:
    """What is to be imported, and how."""

    data: Path
    names: Sequence[str]
    """Topics, or patterns such as ``orders-*``; none: all that are not internal."""
    with_groups: bool
    is_last: bool
    """Open the topics at the end; else they stay copies, for a later run to go on with."""
    replicas: int | None
    """Of topics that are made; None: as many as they have there."""
    patience_ms: int
    fetch_bytes: int
    """How much is asked for at once of each of the source's brokers."""


@dataclass(slots=True)
class Outcome:
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0
    size: int = 0
    brought: offsets.Brought | None = None


class Import:
    def __init__(
        self,
        wish: Wish,
        source: Gateway,
        properties: Mapping[str, str],
        target: Gateway,
        clock: Clock,
        note: Callable[[str], None],
    ) -> None:
        self._wish = wish
        self._source = source
        self._properties = properties
        self._target = target
        self._clock = clock
        self._note = note
        self._ledger = Ledger(wish.data)
        self._here = Here(wish.data)
        self._there = Patience(source, clock, wish.patience_ms)
        self._ours = Patience(target, clock, wish.patience_ms)
        self._groups: set[str] = set()
        self._copies: list[PartitionCopy] = []
        self.outcome = Outcome()

    def run(self, progress: Callable[[Sequence[PartitionCopy], Copying], None]) -> Outcome:
        """May be interrupted or killed at any moment; called again it goes on."""
        with Spool(self._wish.data) as spool:
            there, brokers = self._clusters()
            if self._wish.is_last and self._wish.with_groups:
                self._groups = offsets.names(self._source, self._there)
            plans = self._make_topics(there, brokers)
            for plan in plans:
                self._find_positions(plan)
            copying = asyncio.run(self._copy(plans, spool, progress))
            self.outcome.records, self.outcome.size = copying.totals.records, copying.totals.size
            self._finish(plans, copying)
        return self.outcome

    # What is to be copied

    def _clusters(self) -> tuple[ClusterView, int]:
        # Without patience: who cannot be reached now, or does not take our password, is told at once.
        there, here = self._source.cluster(), self._target.cluster()
        # Any of them may be gone in the middle of it, the bootstrap servers too.
        self._source.also_by(there.brokers)
        self._target.also_by(here.brokers)
        own = self._here.cluster_id()
        if here.cluster_id != own:
            raise CommandError(
                f"{self._target.bootstrap} is not the broker whose data lies in {self._wish.data}",
                hint="-b names the broker, --data its data directory.",
                code="ANOTHER_CLUSTER",
            )
        if there.cluster_id == own:
            raise CommandError(
                "the source is this cluster itself",
                hint="SOURCE names another one; -b and --data name this one.",
                code="SAME_CLUSTER",
            )
        return there, len(here.brokers)

    def _make_topics(self, there: ClusterView, brokers: int) -> list[TopicPlan]:
        names = self._chosen(there)
        found = self._there.ask(lambda: self._source.topics(names))
        known = self._ours.ask(lambda: self._target.topics(names))
        plans = []
        for name in names:
            topic, here = found[name], known[name]
            if isinstance(topic, KafkaFailure):
                self._failed(name, topic)
                continue
            plan = TopicPlan(
                name,
                topics.source_name(there.cluster_id, topic),
                len(topic.partitions),
                max(min(self._wish.replicas or topic.replication_factor, brokers), 1),
                here if isinstance(here, TopicView) else None,
            )
            if self._is_to_be_copied(plan):
                failure = self._create(plan)
                if failure is None:
                    plans.append(plan)
                else:
                    self._failed(name, failure)
        failed = topics.set_up(self._source, self._target, plans) if plans else {}
        for name, failure in failed.items():
            self._failed(name, failure)
        return [plan for plan in plans if plan.name not in failed]

    def _create(self, plan: TopicPlan) -> KafkaFailure | None:
        """A controller that is just being replaced may have made it, or not."""

        def ask() -> KafkaFailure | None:
            if plan.here is None:
                found = self._target.topics([plan.name])[plan.name]
                plan.here = found if isinstance(found, TopicView) else None
            return topics.create(self._target, plan)

        return self._ours.ask(ask, lambda failure: failure is None or not passes(failure))

    def _chosen(self, there: ClusterView) -> list[str]:
        names = [
            topic.name
            for topic in there.topics
            if not topic.is_internal and not is_internal(topic.name)
        ]
        if not self._wish.names:
            return names
        for pattern in self._wish.names:
            if not fnmatch.filter(names, pattern):
                self.outcome.errors.append(
                    ItemError(
                        "UNKNOWN_TOPIC_OR_PARTITION",
                        "the source has no such topic",
                        {"topic": pattern},
                    )
                )
        return [
            name
            for name in names
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._wish.names)
        ]

    def _is_to_be_copied(self, plan: TopicPlan) -> bool:
        here = plan.here
        if here is None:
            return True
        views = self._target.topic_configs([plan.name], [topics.FROM])[plan.name]
        if isinstance(views, KafkaFailure):
            self._failed(plan.name, views)
            return False
        copied_from = views[0].value if views else ""
        if self._ledger.has(plan.name, plan.source, here.topic_id):
            if copied_from == plan.source:  # interrupted just before its end
                self._open(plan)
            self._tell(plan.name, "was imported before", 0)
            return False
        if copied_from == plan.source:
            return True
        self.outcome.errors.append(
            ItemError(
                "TOPIC_ALREADY_EXISTS",
                "a topic of this name is here already, and is no copy of that one",
                {"topic": plan.name},
                "Nothing of it was touched. Delete it, or import others by their names.",
            )
        )
        return False

    def _find_positions(self, plan: TopicPlan) -> None:
        """Where each partition's copy ends; of a topic that is just being made, as soon as it is led."""
        deadline_ms = self._clock.monotonic_ms() + self._wish.patience_ms
        told = self._here.positions(plan.name, plan.source)
        while late := [index for index, each in enumerate(told) if isinstance(each, NotNow)]:
            if self._clock.monotonic_ms() > deadline_ms:
                break
            time.sleep(PAUSE_S)
            for index, each in zip(
                late, self._here.positions(plan.name, plan.source, late), strict=True
            ):
                told[index] = each
        for index, each in enumerate(told):
            copy = PartitionCopy(TopicPartition(plan.name, index), plan.source, 0, is_empty=True)
            if isinstance(each, Position):
                copy.first_offset = each.end_offset
                copy.go_on_from(each.start_offset, each.end_offset)
            else:
                copy.failure = each.reason
            self._copies.append(copy)

    # Copying

    async def _copy(
        self,
        plans: Sequence[TopicPlan],
        spool: Spool,
        progress: Callable[[Sequence[PartitionCopy], Copying], None],
    ) -> Copying:
        reader = BatchReader(
            self._source.bootstrap, self._properties, fetch_bytes=self._wish.fetch_bytes
        )
        copying = Copying(
            self._here,
            self._source,
            reader,
            spool,
            self._clock,
            self._wish.patience_ms,
            lambda: progress(self._copies, copying),
        )
        try:
            if plans:
                await reader.start({plan.name for plan in plans})
            for _ in range(ROUNDS):
                await asyncio.to_thread(self._aim)
                await copying.run([copy for copy in self._copies if copy.failure is None])
            await copying.trim(self._copies)
        finally:
            await reader.close()
        return copying

    def _aim(self) -> None:
        """Ask the source where each partition begins and ends now."""
        copies = [copy for copy in self._copies if copy.failure is None]
        keys = [copy.partition for copy in copies]
        if not keys:
            return
        starts = self._offsets(keys, OffsetAt.EARLIEST)
        # Asked before the stable ends: what is written in between does not look like an open transaction.
        latest = self._offsets(keys, OffsetAt.LATEST)
        ends = self._offsets(keys, OffsetAt.LATEST, read_committed=True)
        for copy in copies:
            start, written, end = (each[copy.partition] for each in (starts, latest, ends))
            if isinstance(start, KafkaFailure):
                copy.failure = str(start)
            elif isinstance(written, KafkaFailure):
                copy.failure = str(written)
            elif isinstance(end, KafkaFailure):
                copy.failure = str(end)
            else:
                copy.behind_open = max(0, written.offset - end.offset)
                try:
                    copy.aim(start.offset, end.offset)
                except Refused as error:
                    copy.failure = str(error)

    def _offsets(
        self, keys: Sequence[TopicPartition], at: OffsetAt, *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetView | KafkaFailure]:
        """Those that a leader has not told yet are asked for again, until the patience has ended."""
        found: dict[TopicPartition, OffsetView | KafkaFailure] = {}

        def ask() -> None:
            left = [key for key in keys if not isinstance(found.get(key), OffsetView)]
            found.update(self._source.offsets(left, at, read_committed=read_committed))

        def is_settled(_: None) -> bool:
            return not any(
                isinstance(each, KafkaFailure) and passes(each) for each in found.values()
            )

        self._there.ask(ask, is_settled)
        return found

    # The end

    def _finish(self, plans: Sequence[TopicPlan], copying: Copying) -> None:
        failed = set()
        for copy in self._copies:
            if copy.failure is not None:
                failed.add(copy.partition.topic)
                subject = {"topic": str(copy.partition)}
                self.outcome.errors.append(ItemError("NOT_COPIED", copy.failure, subject))
            elif copy.lost:
                self.outcome.notes.append(
                    f"{copy.partition}: the source deleted {copy.lost:,} offsets before they were copied"
                )
            if copy.behind_open and self._wish.is_last:
                failed.add(copy.partition.topic)
                self.outcome.errors.append(_behind_open(copy))
        whole = [plan for plan in plans if plan.name not in failed]
        if self._wish.is_last and self._wish.with_groups and whole:
            names = {plan.name for plan in whole}
            ends = {
                copy.partition: copying.end_here(copy)
                for copy in self._copies
                if copy.partition.topic in names
            }
            brought = self.outcome.brought = offsets.bring(
                (self._source, self._there), (self._target, self._ours), self._groups, ends
            )
            self.outcome.errors += brought.errors
            failed |= brought.topics_left
        for plan in plans:
            self.outcome.notes += [f"{plan.name}: {note}" for note in plan.notes]
            copied = sum(
                copying.end_here(copy) - copy.first_offset
                for copy in self._copies
                if copy.partition.topic == plan.name
            )
            if plan.name in failed:
                self._tell(plan.name, "not finished", copied)
            elif not self._wish.is_last:
                self._tell(plan.name, "copied, still closed", copied)
            elif self._open(plan):
                self._tell(plan.name, "imported", copied)

    def _open(self, plan: TopicPlan) -> bool:
        here = self._ours.ask(lambda: self._target.topics([plan.name]))[plan.name]
        if isinstance(here, TopicView):
            self._ledger.note(plan.name, plan.source, here.topic_id)
        failure = self._ours.ask(
            lambda: topics.open_to_all(self._target, plan.name),
            lambda failure: failure is None or not passes(failure),
        )
        if failure is not None:
            self._failed(plan.name, failure)
        return failure is None

    def _tell(self, name: str, outcome: str, offset_count: int) -> None:
        self.outcome.rows.append({"topic": name, "outcome": outcome, "offsets": offset_count})

    def _failed(self, name: str, failure: KafkaFailure) -> None:
        self.outcome.errors.append(ItemError.of(failure, topic=name))


def _behind_open(copy: PartitionCopy) -> ItemError:
    return ItemError(
        "OPEN_TRANSACTION",
        f"{copy.behind_open:,} offsets lie behind a transaction of the source that is still open",
        {"topic": str(copy.partition)},
        "When it has ended call the import again: `kafka-transactions.sh find-hanging` shows whose it is,"
        " its time-out or `kafka-transactions.sh abort` ends it.",
    )
