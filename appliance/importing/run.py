"""One import, from what is asked for to what is told of it."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from appliance import control
from appliance.failure import CommandError, ItemError
from appliance.importing import offsets, topics
from appliance.importing.copying import Copying
from appliance.importing.ledger import Ledger
from appliance.importing.progress import PartitionCopy, Refused
from appliance.importing.spool import Spool
from appliance.importing.topics import TopicPlan
from broker.clock import Clock
from broker.model.ids import TopicPartition
from broker.model.internal_topics import is_internal
from dashboard.cluster import ClusterView, KafkaFailure, TopicView
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
        self._copies: list[PartitionCopy] = []
        self.outcome = Outcome()

    def run(self, progress: Callable[[Sequence[PartitionCopy], Copying], None]) -> Outcome:
        """May be interrupted or killed at any moment; called again it goes on."""
        with Spool(self._wish.data) as spool:
            there, brokers = self._clusters()
            plans = self._make_topics(there, brokers)
            self._find_positions(plans)
            copying = asyncio.run(self._copy(plans, spool, progress))
            self.outcome.records, self.outcome.size = copying.totals.records, copying.totals.size
            self._finish(plans, copying)
        return self.outcome

    # What is to be copied

    def _clusters(self) -> tuple[ClusterView, int]:
        there, here = self._source.cluster(), self._target.cluster()
        own = control.ask(self._wish.data, "stats")["cluster_id"]
        if here.cluster_id != own:
            raise CommandError(
                f"{self._target.bootstrap} is not the broker whose data lies in {self._wish.data}",
                hint="-b names the broker, --data its data directory.",
                code="ANOTHER_CLUSTER",
            )
        if there.cluster_id == own:
            raise CommandError("the source is this cluster itself", code="SAME_CLUSTER")
        return there, len(here.brokers)

    def _make_topics(self, there: ClusterView, brokers: int) -> list[TopicPlan]:
        names = self._chosen(there)
        found, known = self._source.topics(names), self._target.topics(names)
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
                max(min(topic.replication_factor, brokers), 1),
                here if isinstance(here, TopicView) else None,
            )
            if self._is_to_be_copied(plan):
                failure = topics.create(self._target, plan)
                if failure is None:
                    plans.append(plan)
                else:
                    self._failed(name, failure)
        failed = topics.set_up(self._source, self._target, plans) if plans else {}
        for name, failure in failed.items():
            self._failed(name, failure)
        return [plan for plan in plans if plan.name not in failed]

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

    def _find_positions(self, plans: Iterable[TopicPlan]) -> None:
        for plan in plans:
            answer = control.ask(
                self._wish.data, "import_positions", topic=plan.name, **{"from": plan.source}
            )
            for index, told in enumerate(answer["partitions"]):
                start, end = told["start_offset"], told["end_offset"]
                key = TopicPartition(plan.name, index)
                self._copies.append(
                    PartitionCopy(key, plan.source, end, start == end, first_offset=end)
                )

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
            self._wish.data,
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
        finally:
            await reader.close()
        return copying

    def _aim(self) -> None:
        """Ask the source where each partition begins and ends now."""
        copies = [copy for copy in self._copies if copy.failure is None]
        keys = [copy.partition for copy in copies]
        if not keys:
            return
        starts = self._source.offsets(keys, OffsetAt.EARLIEST)
        ends = self._source.offsets(keys, OffsetAt.LATEST, read_committed=True)
        for copy in copies:
            start, end = starts[copy.partition], ends[copy.partition]
            if isinstance(start, KafkaFailure):
                copy.failure = str(start)
            elif isinstance(end, KafkaFailure):
                copy.failure = str(end)
            else:
                try:
                    copy.aim(start.offset, end.offset)
                except Refused as error:
                    copy.failure = str(error)

    # The end

    def _finish(self, plans: Sequence[TopicPlan], copying: Copying) -> None:
        failed = set()
        for copy in self._copies:
            copying.trim(copy)
            if copy.failure is not None:
                failed.add(copy.partition.topic)
                subject = {"topic": str(copy.partition)}
                self.outcome.errors.append(ItemError("NOT_COPIED", copy.failure, subject))
            elif copy.lost:
                self.outcome.notes.append(
                    f"{copy.partition}: the source deleted {copy.lost:,} offsets before they were copied"
                )
        whole = [plan for plan in plans if plan.name not in failed]
        if self._wish.is_last and self._wish.with_groups and whole:
            names = {plan.name for plan in whole}
            ends = {
                copy.partition: copying.end_here(copy)
                for copy in self._copies
                if copy.partition.topic in names
            }
            brought = self.outcome.brought = offsets.bring(self._source, self._target, ends)
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
        here = self._target.topics([plan.name])[plan.name]
        if isinstance(here, TopicView):
            self._ledger.note(plan.name, plan.source, here.topic_id)
        failure = topics.open_to_all(self._target, plan.name)
        if failure is not None:
            self._failed(plan.name, failure)
        return failure is None

    def _tell(self, name: str, outcome: str, offset_count: int) -> None:
        self.outcome.rows.append({"topic": name, "outcome": outcome, "offsets": offset_count})

    def _failed(self, name: str, failure: KafkaFailure) -> None:
        self.outcome.errors.append(ItemError.of(failure, topic=name))
