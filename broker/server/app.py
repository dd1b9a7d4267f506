"""The composition root: everything that the broker consists of, in the order in which it starts.

Start: data directory and lock → control socket and metrics → metadata store → logs (recovery) → controller
(registration; leader epochs raised after an unclean start) → hosting → listeners. Ready means that
the first request is answered. With ``zookeeper.connect`` the listeners come before the registration, for other
brokers only, and roles are taken when that was answered (``cluster/membership.py``). Stop: listeners stop accepting, requests under way get a moment to
end, connections close, logs are closed and checkpointed, the clean-shutdown mark is written last.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.clock import SystemClock
from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.config.topic_config import TopicConfig, resolve_topic_config
from broker.metadata.controller import Controller
from broker.metadata.files import DiskDirectory
from broker.metadata.image import ClusterImage, PartitionImage
from broker.metadata.image import Endpoint as BrokerEndpoint
from broker.metadata.journal import CorruptStoreError
from broker.metadata.local_store import LocalStore
from broker.metadata.requests import NewTopic
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.model.errors import CorruptLogError, StorageError
from broker.model.features import why_unsupported
from broker.model.ids import BrokerId, TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.protocol import schema
from broker.protocol.framing import ReceiveBudget, Scratch
from broker.replication.fetch_session import FetchSessionCache
from broker.replication.replica_manager import ReplicaManager
from broker.server.background import Threads
from broker.server.cluster.settings import zookeeper_address
from broker.server.commands import COMMANDS
from broker.server.connection import Connection
from broker.server.context import Node
from broker.server.control import ControlSocket
from broker.server.coordination import Coordination
from broker.server.data_directory import (
    DataDirectoryLock,
    Identity,
    find_identity,
    may_map,
    refuse_missing_logs,
    refuse_newer_layout,
    refuse_unfinished_adoption,
    refuse_unfinished_restore,
    refuse_without_zookeeper,
)
from broker.server.dispatcher import Dispatcher
from broker.server.handlers.metadata import FragmentCache
from broker.server.hosting import Hosting
from broker.server.listener import Endpoint, Listener
from broker.server.maintenance import Maintenance
from broker.server.metrics import MetricsEndpoint
from broker.server.producer_ids import ProducerIds
from broker.server.quota import ConnectionQuota, descriptor_limit, file_descriptors
from broker.server.start_error import StartError, StartInterrupted
from broker.server.tasks import TaskGroup, called_back
from broker.server.transactions import Transactions
from broker.server.watchdog import Watchdog
from broker.storage.context import OpeningInterrupted
from broker.storage.filesystem import RealFileSystem
from broker.storage.log_directory import DirectoryInUse, ForeignDirectory, PartitionTwice
from broker.storage.log_manager import LogManager

if TYPE_CHECKING:
    from broker.metadata.store import Node as StoredNode
    from broker.server.backup import Cut
    from broker.server.cluster.membership import Membership

logger = logging.getLogger(__name__)

#: How long requests under way may take to end when the broker stops.
DRAIN_SECONDS: Final = 2.0
DEFAULT_REQUEST_BYTES: Final = 512 * 1024 * 1024


class LoopScheduler:
    """``replication.delayed.Scheduler`` on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.call_soon = loop.call_soon

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class Broker:
    """What handlers and timers reach everything else by."""

    def __init__(
        self, data_directory: Path, settings: Mapping[str, str], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.data_directory = data_directory
        self._settings = dict(settings)
        self.loop = loop
        self.clock = SystemClock()
        self.config: BrokerConfig = resolve_broker_config(settings)
        self.threads = Threads(loop)
        self.scheduler = LoopScheduler(loop)
        self.tasks = TaskGroup(loop, self.fail)
        self.scratch = Scratch()
        limit = self.config.queued_max_request_bytes
        self.receive_budget = ReceiveBudget(
            limit if limit > 0 else DEFAULT_REQUEST_BYTES, self._on_room
        )
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots, random.SystemRandom()
        )
        self.fragments = FragmentCache()
        self.dispatcher = Dispatcher(self)
        self.watchdog = Watchdog(loop, lambda: sum(self.dispatcher.request_counts.values()))
        self.quota = ConnectionQuota(lambda: self.config, descriptor_limit())
        self.listeners: list[Listener] = []
        self.hosting = Hosting(self)
        self.maintenance = Maintenance(self)
        self.coordination = Coordination(self)
        self.transactions = Transactions(self)
        self.control = ControlSocket(self, data_directory, COMMANDS)
        self.metrics = MetricsEndpoint(self)
        self.started_ms = self.clock.wall_ms()
        self.is_ready = False
        self.stop_requested = asyncio.Event()
        #: Why this process cannot go on, if so: it stops, and its exit code says that it failed.
        self.failure: str | None = None
        self.is_hosting = False
        #: Offline partitions that are being made whole in a thread.
        self.repairing: set[TopicPartition] = set()
        #: What a backup that is under way copies up to.
        self.cut: Cut | None = None
        self._lock: DataDirectoryLock | None = None
        self._is_opening = False
        #: Logs opened so far, and how many there are.
        self.recovery = (0, 0)
        self.cluster_id = ""
        # Made by start(), in this order.
        self.logs: LogManager
        self.replicas: ReplicaManager
        self.producer_ids: ProducerIds
        # One of these is: of a cluster of one, or of a cluster through ZooKeeper.
        self._store: LocalStore | None = None
        self._controller: Controller
        self.cluster: Membership | None = None

    def durable_metadata(self) -> dict[str, StoredNode]:
        """Every node of the metadata store. Raises ValueError where it is not ours to copy."""
        if self._store is None:
            raise ValueError(
                "this cluster's metadata is kept in ZooKeeper, which has to be backed up itself"
            )
        return self._store.durable_nodes()

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. Raises StartError, and StartInterrupted after
        ``request_stop``."""
        self._lock = DataDirectoryLock(self.data_directory)
        refuse_newer_layout(self.data_directory)
        refuse_unfinished_adoption(self.data_directory)
        refuse_unfinished_restore(self.data_directory)
        await self.control.start()
        await self.metrics.start()
        address = zookeeper_address(self.config)
        if address is None:
            identity = await self._open_local_store()
        else:
            identity = await self._open_cluster(address)
        self._check_stop()
        await self._open_logs()
        if self.cluster is None:
            await self._register()
        self.replicas = ReplicaManager(
            self.logs,
            self.clock,
            self.threads,
            BrokerId(self.config.node_id),
            lambda: self.config.replica_lag_time_max_ms,
            lambda: self.config.replica_lag_max_messages,
        )
        if self.cluster is not None:
            self.replicas.on_storage_error = self._on_storage_error
            await self._join(self.cluster)
        self.is_hosting = True
        self.hosting.load(self.image, may_delete=not identity.is_new)
        await self._sync_recovered()
        self._check_stop()
        self.coordination.start()
        self.transactions.start()
        if self.cluster is None:
            self._listen()
        self.dispatcher.is_open = True
        self.watchdog.start()
        self.maintenance.start()
        self.is_ready = True

    async def finish_loading(self) -> None:
        """Import what clients may ask for, while the first of them are served already.

        In a thread: an import runs for up to 10 ms, and the loop gets its turn in the midst of it.
        """

        def load() -> None:
            for _ in schema.preload():
                if self.stop_requested.is_set():
                    return

        await self.threads.computed(load)

    async def _sync_recovered(self) -> None:
        """What recovery kept of logs with ``flush.messages=1`` was acknowledged: sync it, so that
        it is visible again before the first client asks."""
        bound = self.replicas.flush_bound_partitions()
        without_room = await self.maintenance.flushes_done(bound)
        if without_room:
            logger.error(
                "no room to sync %d partitions: what they received last is not visible until there is",
                without_room,
            )

    def request_stop(self) -> None:
        """Begin a clean stop; a start that is under way ends without serving."""
        self.stop_requested.set()
        if self._is_opening:
            self.logs.interrupt()
        if self.cluster is not None:
            self.cluster.interrupt()

    def fail(self, why: str) -> None:
        """A part is lost that the broker cannot do without, and that only another process can begin anew."""
        if self.stop_requested.is_set():
            logger.error("while this broker stops: %s", why)
            return
        logger.critical("this broker ends, to be started anew: %s", why)
        self.failure = why
        self.request_stop()

    def _on_storage_error(self, error: StorageError) -> None:
        """In a cluster others can lead what lay there, once this broker has ended. Its next life does without."""
        self.fail(f"log directory {error.log_dir} has failed: {error}")

    def _check_stop(self) -> None:
        if self.stop_requested.is_set():
            raise StartInterrupted

    async def _open_local_store(self) -> Identity:
        refuse_without_zookeeper(self.data_directory / "metadata")
        store = self._store = LocalStore(
            DiskDirectory(str(self.data_directory / "metadata")),
            self._run_blocking,
            self._post,
            self._on_store_failure,
        )
        try:
            await self.threads.call(store.open)
        except CorruptStoreError as error:
            raise StartError(
                f"the metadata store is damaged: {error}; restore {self.data_directory}/metadata"
                " from a backup"
            ) from error
        self._controller = Controller(
            store=store,
            broker_id=BrokerId(self.config.node_id),
            broker_config=lambda: self.config,
            clock=self.clock,
            new_topic_id=uuid.uuid4,
            dice=random.Random(),  # noqa: S311 - placement, not secrets
            post=self._post,
            on_image=self._on_image,
        )
        self.producer_ids = ProducerIds(self._controller.allocate_producer_ids, self.loop)
        identity = await find_identity(store, self.config.log_dirs)
        self.cluster_id = identity.cluster_id
        problem = await called_back(self._controller.start, self.cluster_id)
        if problem is not None:
            raise StartError(problem)
        unsupported = why_unsupported(self.image.features)
        if unsupported is not None:
            raise StartError(f"this version cannot serve this data directory: {unsupported}")
        self.on_broker_configs(self.image)
        return identity

    async def _open_cluster(self, address: ZooKeeperAddress) -> Identity:
        # Here: a broker without a cluster imports nothing of it.
        from broker.server.cluster.membership import Membership
        from broker.server.cluster.producer_ids import ProducerIdBlocks

        self.dispatcher.is_open = False
        cluster = self.cluster = Membership(self, address, self._on_image)
        agreed = await cluster.open(self.config.log_dirs)
        blocks = ProducerIdBlocks(cluster.store, cluster.broker_id)
        self.producer_ids = ProducerIds(blocks.allocate, self.loop)
        self.cluster_id = agreed.cluster_id
        self.on_broker_configs(self.image)
        return Identity(agreed.cluster_id, False)

    async def _join(self, cluster: Membership) -> None:
        """Returns when roles may be taken."""
        for each in self._advertised():
            if each.host in ("", "0.0.0.0", "::"):  # noqa: S104 - told to nobody
                raise StartError(
                    f"other brokers cannot dial listener {each.listener}: set advertised.listeners"
                )
        self._listen()
        first = next(iter(self.logs.directories.values()))
        cluster.start(self._advertised(), self.config.broker_rack, str(first.meta.directory_id))
        await cluster.answered()
        self._check_stop()
        cluster.replication.start()
        self.on_broker_configs(self.image)

    def _advertised(self) -> tuple[BrokerEndpoint, ...]:
        return tuple(
            BrokerEndpoint(each.name, each.host, each.port, each.security_protocol)
            for each in self.config.advertised_listeners or self.config.listeners
        )

    async def _open_logs(self) -> None:
        config = self.config
        self.logs = LogManager(
            config.log_dirs,
            RealFileSystem(file_descriptors(descriptor_limit())),
            self.clock,
            cluster_id=self.cluster_id,
            node_id=config.node_id,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            max_mapped_tails=(
                config.log_mapped_segments
                if may_map(config.log_append_mode, config.log_dirs)
                else 0
            ),
        )
        self._tell_floors()
        image = self.image

        def config_for(topic_partition: TopicPartition) -> TopicConfig:
            topic = image.topics.get(topic_partition.topic)
            return resolve_topic_config(topic.configs if topic is not None else {}, config)

        def on_progress(done: int, total: int) -> None:
            self.recovery = (done, total)

        def open_logs() -> None:
            self.logs.open(
                config_for,
                threads=config.num_recovery_threads_per_data_dir,
                progress=on_progress,
            )

        if not config.may_begin_empty:
            await self._refuse_missing_logs()
        self._is_opening = True
        try:
            await self.threads.call(open_logs)
        except (DirectoryInUse, ForeignDirectory, PartitionTwice) as error:
            raise StartError(str(error)) from error
        except OpeningInterrupted:
            raise StartInterrupted from None
        finally:
            self._is_opening = False
        self._check_stop()
        if self.cluster is not None and self.logs.is_offline:
            reasons = [str(each.offline_reason) for each in self.logs.directories.values()]
            raise StartError(f"no log directory works: {'; '.join(reasons)}")

    async def _refuse_missing_logs(self) -> None:
        """Raises StartError."""
        held_alone = (
            TopicPartition(topic.name, index)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self.cluster is None or partition.isr == {self.config.node_id}
        )
        try:
            refuse_missing_logs(self.config.log_dirs, held_alone)
        except StartError:
            if self.cluster is not None:
                await self.cluster.refuse_rival()  # who has them
            raise

    async def _register(self) -> None:
        """In a cluster of one: there is nobody else to notice that this broker was away."""
        broker_id = BrokerId(self.config.node_id)
        if not all(directory.was_clean for directory in self.logs.directories.values()):
            raised = await called_back(self.controller.raise_leader_epochs, broker_id)
            if not raised.is_success:
                raise StartError(f"leader epochs cannot be raised: {raised.message}")
        registered = await called_back(
            self.controller.register_broker, broker_id, self._advertised(), self.config.broker_rack
        )
        if not registered.is_success:
            raise StartError(f"this broker cannot be registered: {registered.message}")

    def _listen(self) -> None:
        advertised = {listener.name: listener for listener in self.config.advertised_listeners}
        try:
            for listener in self.config.listeners:
                told = advertised.get(listener.name)
                endpoint = Endpoint(
                    listener.name,
                    listener.host or "0.0.0.0",  # noqa: S104 - what an empty host asks for
                    listener.port,
                    told.host if told is not None else None,
                    told.port if told is not None else None,
                )
                self.listeners.append(Listener(self, endpoint))
        except OSError as error:
            raise StartError(f"cannot listen on {listener}: {error.strerror}") from error
        for listening in self.listeners:
            listening.start()

    async def stop(self) -> None:
        """Ordered stop; afterwards a start needs no recovery."""
        self.is_ready = False
        if self.cluster is not None and self.config.controlled_shutdown_enable:
            await self.cluster.leave()
        for listener in self.listeners:
            listener.stop_accepting()
        self.maintenance.stop()
        self.coordination.stop()
        self.transactions.stop()
        self.watchdog.stop()
        await self._drain()
        for listener in self.listeners:
            listener.close_connections()
        await self.tasks.cancel()
        self.is_hosting = False
        self.hosting.stop()
        await self.hosting.deletions_done()
        await self.metrics.stop()
        await self.control.stop()
        await self._close_store()
        # What came back from threads until now may have changed a log; nothing does from here on.
        await self.threads.idle()
        await self.threads.call(self.logs.close)
        self.threads.close()
        self._unlock()

    async def _close_store(self) -> None:
        if self.cluster is not None:
            await self.cluster.stop()
        if self._store is not None:
            while not self._store.is_idle:
                await asyncio.sleep(0.001)
            self._store.close()

    async def abandon(self) -> None:
        """The start failed or was broken off: give back what was taken, without a clean mark."""
        for listener in self.listeners:
            listener.stop_accepting()
            listener.close_connections()
        await self.tasks.cancel()
        if self.cluster is not None:
            await self.cluster.stop()
        await self.metrics.stop()
        await self.control.stop()
        self.threads.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _drain(self) -> None:
        deadline = self.loop.time() + DRAIN_SECONDS
        while self.loop.time() < deadline and any(
            connection.is_producing
            for listener in self.listeners
            for connection in listener.connections
        ):
            await asyncio.sleep(0.01)

    # -- what handlers ask --------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        return self._controller.image if self.cluster is None else self.cluster.image

    @property
    def controller(self) -> Controller:
        """Whom to ask for changes; in a cluster it refuses unless this broker is in office."""
        return self._controller if self.cluster is None else self.cluster.controller

    @property
    def most_replicas(self) -> int:
        """That a partition which is made now can have."""
        return max(len(self.image.brokers), 1)

    def leads(self, topic: str, index: int) -> bool:
        return self.cluster is None or self.cluster.leads(topic, index)

    def holds(self, partition: PartitionImage) -> bool:
        """Whether one of its replicas is this broker's."""
        return self.cluster is None or self.config.node_id in partition.replicas

    def nodes(self, connection: Connection) -> list[Node]:
        """The brokers, at the addresses that ``connection``'s client shall dial."""
        host, port = connection.listener.advertised(connection)
        own = Node(self.config.node_id, host, port, self.config.broker_rack)
        if self.cluster is None:
            return [own]
        name = connection.listener.endpoint.name
        others = [
            Node(broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker_id, broker in self.image.brokers.items()
            for endpoint in broker.endpoints
            if broker_id != own.broker_id and endpoint.listener == name
        ]
        return [own, *others]

    async def create_topics(self, topics: list[NewTopic]) -> None:
        """Of the broker's own accord; whoever loses a race finds the topics anyway."""
        if self.cluster is None:
            await called_back(self.controller.create_topics, topics, False)
        else:
            await self.cluster.create_topics(topics)

    async def create_missing_topics(self, names: list[str]) -> None:
        """Auto-creation; whoever loses the race against another creation finds the topic anyway.

        A coordinator's topic gets what it needs, also where a consumer asks for it first.
        """
        own = {
            CONSUMER_OFFSETS: self.coordination.new_topic,
            TRANSACTION_STATE: self.transactions.new_topic,
        }
        topics = [own[name]() if name in own else NewTopic(name) for name in names]
        await self.create_topics(topics)

    async def next_turn(self) -> None:
        """Let others run."""
        await asyncio.sleep(0)

    async def deletions_done(self) -> None:
        await self.hosting.deletions_done()

    async def checkpoint_log_start_offsets(self) -> None:
        for work in self.logs.log_start_work():
            await self.threads.call(work.run)

    def report_corruption(self, error: CorruptLogError) -> None:
        self.maintenance.report_once(str(error))

    def report_read_error(self, topic: object, partition: int, error: Exception) -> None:
        self.maintenance.report_once(f"reading {topic}-{partition} failed: {error}")

    def on_broker_configs(self, image: ClusterImage) -> None:
        """Dynamic broker settings have changed: resolve, and every topic's defaults with them."""
        node_id = BrokerId(self.config.node_id)
        self.config = resolve_broker_config(
            self._settings,
            image.default_broker_configs,
            image.broker_configs.get(node_id, {}),
        )
        for ignored in self.config.ignored:
            logger.warning("a stored setting is not used: %s", ignored)
        if self.is_hosting:
            self._tell_floors()
            self.hosting.reconfigure_all()

    def _tell_floors(self) -> None:
        self.logs.floor_bytes = self.config.disk_floor_bytes
        self.logs.replication_floor_bytes = self.config.disk_floor_replication_bytes

    # -- wiring -------------------------------------------------------------------------------

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if self.is_hosting:
            self.hosting.on_image(old, new)
            self.coordination.on_image(new)
            self.transactions.on_image(new)

    def _post(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    def _on_room(self) -> None:
        for listener in self.listeners:
            listener.on_room()

    def _run_blocking(
        self, work: Callable[[], None], then: Callable[[BaseException | None], None]
    ) -> None:
        self.threads.flush(work, lambda _, error: then(error))

    def _on_store_failure(self, why: str) -> None:
        logger.critical("the metadata store failed: %s", why)
