"""One look at a cluster over plain sockets: topology first, then every broker at once.

Partial by design: a broker that does not answer within ``BROKER_TIMEOUT_S`` leaves what it told
before, stale since then, and holds up nobody. The topology is asked of another broker when the first
one is slow (``HEDGE_S``), of all of them no longer than ``TIMEOUT_S``: whoever is silent, a look is over
after ``HEDGE_S + BROKER_TIMEOUT_S``, and pages say so within two seconds of the tick. Topics about which nothing has changed keep their state object: a tick over
10,000 idle topics makes next to nothing anew. One thread at a time calls ``look``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Final

from broker.clock import Clock
from dashboard import survey_wire
from dashboard.broker_api import BrokerApi
from dashboard.cluster import BrokerView, ClusterView, KafkaFailure, TopicView
from dashboard.collecting.broker_survey import BrokerSurvey
from dashboard.collecting.facts import BrokerFacts
from dashboard.collecting.local_survey import LocalSurvey
from dashboard.collecting.problems import ProblemMemory
from dashboard.collecting.states import topic_state
from dashboard.gateway.translate import reason_of
from dashboard.probe import ApiRanges, ask_api_versions, split_address
from dashboard.quorum_wire import DESCRIBE_QUORUM
from dashboard.snapshots import BrokerState, ClusterSnapshot, TopicState
from dashboard.survey_wire import TopologySurvey
from dashboard.wire import WireConnection

TIMEOUT_S: Final = 1.0
FIRST_TIMEOUT_S: Final = 8.0
BROKER_TIMEOUT_S: Final = 1.0
HEDGE_S: Final = 0.25
BROKERS_AT_ONCE: Final = 16

Settings = Callable[[Mapping[str, TopicState]], dict[str, TopicState]]
Address = tuple[str, int]


class CannotSurvey(Exception):
    """The cluster is too old for these questions: the client library has to ask."""


class ClusterSurvey:
    def __init__(
        self,
        bootstrap: str,
        clock: Clock,
        api: BrokerApi | None,
        problems: ProblemMemory,
    ) -> None:
        self._bootstrap = [split_address(server) for server in bootstrap.split(",")]
        self._clock = clock
        self._local = LocalSurvey(api, clock) if api is not None else None
        self._ranges: dict[Address, ApiRanges] = {}
        self._ways: dict[Address, WireConnection] = {}
        self._topology = TopologySurvey()
        self._threads = ThreadPoolExecutor(BROKERS_AT_ONCE, thread_name_prefix="survey")
        self._busy: set[Address] = set()
        self._surveys: dict[int, BrokerSurvey] = {}
        self._facts: dict[int, BrokerFacts] = {}
        self._known: dict[str, tuple[TopicView, TopicState]] = {}
        self._cluster: ClusterView | None = None
        self._shape = _Shape(ClusterView(None, None, (), ()))
        self._problems = problems

    def look(self, now_ms: int, settings: Settings, *, is_complete: bool) -> ClusterSnapshot:
        """Raises KafkaFailure when nobody tells what there is, CannotSurvey for an old cluster."""
        started_ms = self._clock.monotonic_ms()
        node = self._threads.submit(self._ask_node)
        cluster = self._ask_topology()
        # Asked at once: what the topology took is over for this one, too.
        wait([node], max(0.0, HEDGE_S - (self._clock.monotonic_ms() - started_ms) / 1000))
        if self._shape.cluster is not cluster:
            self._shape = _Shape(cluster)
        leads = self._shape.leads
        self._follow(self._shape)
        jobs = {
            broker.broker_id: self._threads.submit(
                self._ask_broker, broker, leads.get(broker.broker_id, ()), is_complete
            )
            for broker in cluster.brokers
        }
        turned = set()
        for broker_id, job in jobs.items():
            facts = self._facts[broker_id]
            was_stale = facts.stale_since_ms
            facts.failure = job.result()
            facts.stale_since_ms = None if facts.failure is None else was_stale or now_ms
            if was_stale != facts.stale_since_ms:
                turned.add(broker_id)
        turned |= self._note_missing(now_ms)
        topics = settings(self._assemble(cluster, turned))
        self._known = {
            view.name: (view, topics[view.name]) for view in cluster.topics if view.name in topics
        }
        return self._snapshot(cluster, topics, now_ms)

    def close(self) -> None:
        self._threads.shutdown()
        for way in self._ways.values():
            way.close()
        for survey in self._surveys.values():
            survey.close()

    # -- asking -------------------------------------------------------------------------------

    def _ask_node(self) -> None:
        if self._local is not None:
            try:
                self._local.ask_node()
            except OSError:
                self._local.node = None

    def _ask_topology(self) -> ClusterView:
        """Of the first broker that answers; the next is asked when one takes long."""
        failures: list[str] = []
        running: dict[Future[ClusterView], Address] = {}
        left = self._candidates()
        deadline_ms = self._clock.monotonic_ms() + self._patience_s * 1000
        while left or running:
            if left:
                address = left.pop(0)
                running[self._threads.submit(self._ask_metadata, address)] = address
            left_s = max(0.0, (deadline_ms - self._clock.monotonic_ms()) / 1000)
            done, _ = wait(running, min(HEDGE_S, left_s) if left else left_s, FIRST_COMPLETED)
            for future in done:
                address = running.pop(future)
                try:
                    self._cluster = future.result()
                except OSError as error:
                    failures.append(f"{address[0]}:{address[1]}: {reason_of(error)}")
                    continue
                return self._cluster
            if not done and self._clock.monotonic_ms() >= deadline_ms:
                failures += [f"{host}:{port}: no answer in time" for host, port in running.values()]
                break
        raise KafkaFailure("NOT_CONNECTED", "; ".join(dict.fromkeys(failures)), is_transport=True)

    @property
    def _patience_s(self) -> float:
        """A broker's first answer about very many topics takes longer than those after it."""
        return FIRST_TIMEOUT_S if self._cluster is None else TIMEOUT_S

    def _candidates(self) -> list[Address]:
        """Those that answered last come first; one that still hangs is left alone."""
        brokers = self._cluster.brokers if self._cluster is not None else ()
        ordered = sorted(brokers, key=lambda one: self._facts_of(one.broker_id).stale_since_ms or 0)
        found = [(one.host, one.port) for one in ordered] + self._bootstrap
        free = [each for each in dict.fromkeys(found) if each not in self._busy]
        return free or list(dict.fromkeys(found))[:1]

    def _ask_metadata(self, address: Address) -> ClusterView:
        if address in self._busy:  # the last question waits for its answer on that connection
            with closing(self._new_way(address)) as way:
                return self._topology.ask(way)
        self._busy.add(address)
        try:
            was_open = address in self._ways
            try:
                return self._topology.ask(self._way_to(address))
            except OSError as error:
                gone = self._ways.pop(address, None)
                if gone is not None:
                    gone.close()
                if not was_open or isinstance(error, TimeoutError):
                    raise
            # Closed since the last tick: idle for too long, or its broker was started anew.
            return self._topology.ask(self._way_to(address))
        finally:
            self._busy.discard(address)

    def _way_to(self, address: Address) -> WireConnection:
        way = self._ways.get(address)
        if way is None:
            way = self._ways[address] = self._new_way(address)
        way.set_timeout(self._patience_s)
        return way

    def _new_way(self, address: Address) -> WireConnection:
        self._check_versions(address)
        return WireConnection(address, self._patience_s)

    def _check_versions(self, address: Address) -> None:
        ranges = self._ranges[address] = ask_api_versions(address, TIMEOUT_S)
        needed = (survey_wire.METADATA, survey_wire.LIST_OFFSETS, survey_wire.LOG_DIRS)
        if not all(ranges.serves(*request) for request in needed):
            raise CannotSurvey

    def _ask_broker(
        self, broker: BrokerView, leads: Sequence[tuple[str, Sequence[int]]], is_complete: bool
    ) -> str | None:
        """Returns why it could not be asked."""
        facts = self._facts[broker.broker_id]
        try:
            self._ask_followers(broker)
            if self._is_local(broker):
                assert self._local is not None
                self._local.look(facts)
            else:
                self._survey_of(broker).look(leads, is_complete=is_complete)
        except OSError as error:
            return reason_of(error)
        return None

    def _ask_followers(self, broker: BrokerView) -> None:
        """What nobody but a leader knows. Nothing where all replicas are in sync, or nobody tells."""
        short = self._shape.short.get(broker.broker_id, ())
        facts = self._facts[broker.broker_id]
        if not short or not any(each.serves(*DESCRIBE_QUORUM) for each in self._ranges.values()):
            facts.followers = {}
            return
        try:
            self._survey_of(broker).look_at_followers(short)
        except OSError:
            facts.followers = {}
            raise

    def _is_local(self, broker: BrokerView) -> bool:
        local = self._local
        return (
            local is not None
            and local.node is not None
            and local.node.is_ready
            and self._cluster is not None
            and local.node.cluster_id == self._cluster.cluster_id
            and local.node.node_id == broker.broker_id
        )

    def _survey_of(self, broker: BrokerView) -> BrokerSurvey:
        known = self._surveys.get(broker.broker_id)
        if known is None or known.view != broker:
            with_volumes = any(
                ranges.serves(*survey_wire.LOG_DIRS_WITH_VOLUMES)
                for ranges in self._ranges.values()
            )
            known = self._surveys[broker.broker_id] = BrokerSurvey(
                broker, self._clock, BROKER_TIMEOUT_S, with_volumes, self._facts[broker.broker_id]
            )
        return known

    # -- remembering --------------------------------------------------------------------------

    def _facts_of(self, broker_id: int) -> BrokerFacts:
        return self._facts.setdefault(broker_id, BrokerFacts(broker_id))

    def _follow(self, shape: _Shape) -> None:
        """Brokers and topics that came and went."""
        for broker in shape.cluster.brokers:
            facts = self._facts_of(broker.broker_id)
            facts.forget(facts.topics.keys() - shape.names)

    def _note_missing(self, now_ms: int) -> set[int]:
        """Brokers that have gone from the cluster: their figures are as old as that."""
        assert self._cluster is not None
        there = {broker.broker_id for broker in self._cluster.brokers}
        turned = set()
        for broker_id, facts in self._facts.items():
            if broker_id not in there and facts.stale_since_ms is None:
                facts.stale_since_ms, facts.failure = now_ms, "not in the cluster any more"
                turned.add(broker_id)
        return turned

    # -- telling ------------------------------------------------------------------------------

    def _assemble(self, cluster: ClusterView, turned: set[int]) -> dict[str, TopicState]:
        changed: set[str] = set()
        for facts in self._facts.values():
            changed |= facts.changed
            facts.changed.clear()
        topics: dict[str, TopicState] = {}
        for view in cluster.topics:
            known = self._known.get(view.name)
            if (
                known is None
                or known[0] is not view
                or view.name in changed
                or (turned and _is_held_by(view, turned))
            ):
                before = known[1] if known is not None else None
                topics[view.name] = topic_state(view, self._facts, before)
            else:
                topics[view.name] = known[1]
        return topics

    def _snapshot(
        self, cluster: ClusterView, topics: dict[str, TopicState], now_ms: int
    ) -> ClusterSnapshot:
        local = self._local
        node = local.node if local is not None else None
        if node is not None and node.cluster_id != cluster.cluster_id:
            node = None  # a broker of this machine that is not of this cluster
        is_whole = len(cluster.brokers) == 1 and self._is_local(cluster.brokers[0])
        traffic = local.traffic if is_whole and local is not None else None
        states = topics.values()
        return ClusterSnapshot(
            now_ms,
            cluster.cluster_id,
            cluster.controller_id,
            self._brokers(self._shape),
            topics,
            problems=self._problems.look(states, self._facts, now_ms, cluster.cluster_id),
            node=node,
            size_bytes=_whole(_total(topic.size_bytes for topic in states)),
            records_in_rate=(
                traffic.records_in if traffic else _total(one.records_in_rate for one in states)
            ),
            bytes_in_rate=(
                traffic.bytes_in if traffic else _total(one.bytes_in_rate for one in states)
            ),
            bytes_out_rate=traffic.bytes_out if traffic else None,
            records_out_rate=traffic.records_out if traffic else None,
        )

    def _brokers(self, shape: _Shape) -> dict[int, BrokerState]:
        views = {broker.broker_id: broker for broker in shape.cluster.brokers}
        states = {}
        # A broker that replicas are placed on, but that is not there, has a row of its own.
        for broker_id in sorted(views.keys() | shape.held.keys()):
            view = views.get(broker_id) or BrokerView(broker_id, "", 0)
            facts = self._facts.get(broker_id) or BrokerFacts(
                broker_id, failure="not in the cluster"
            )
            states[broker_id] = BrokerState(
                broker_id,
                view.host,
                view.port,
                view.rack,
                broker_id == shape.cluster.controller_id,
                shape.led.get(broker_id, 0),
                shape.held.get(broker_id, 0),
                facts.size_bytes,
                facts.stale_since_ms,
                facts.failure,
                facts.disk_total_bytes,
                facts.disk_free_bytes,
                facts.offline_directories,
            )
        return states


class _Shape:
    """What follows from a topology alone; made once for each that differs."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster
        self.names = {topic.name for topic in cluster.topics}
        self.leads: dict[int, list[tuple[str, list[int]]]] = {}
        """By broker: topics, and the partitions of each that it leads."""
        self.short: dict[int, list[tuple[str, list[int]]]] = {}
        """Those of them that have fewer replicas in sync than replicas."""
        self.led: dict[int, int] = {}
        self.held: dict[int, int] = {}
        for topic in cluster.topics:
            by_leader: dict[int, list[int]] = {}
            short: dict[int, list[int]] = {}
            for partition in topic.partitions:
                if partition.leader is not None:
                    by_leader.setdefault(partition.leader, []).append(partition.index)
                    if partition.is_under_replicated:
                        short.setdefault(partition.leader, []).append(partition.index)
                for broker_id in partition.replicas:
                    self.held[broker_id] = self.held.get(broker_id, 0) + 1
            for leader, indexes in by_leader.items():
                self.leads.setdefault(leader, []).append((topic.name, indexes))
                self.led[leader] = self.led.get(leader, 0) + len(indexes)
            for leader, indexes in short.items():
                self.short.setdefault(leader, []).append((topic.name, indexes))


def _is_held_by(view: TopicView, brokers: set[int]) -> bool:
    return any(brokers.intersection(partition.replicas) for partition in view.partitions)


def _total(values: Iterable[float | None]) -> float | None:
    """Of those that are told; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
