"""Prometheus reads the broker here: ``odradek.metrics.listen``, on loopback, off unless set.

Kafka's metric names where Kafka has the metric, as its exporters write them
(``kafka_server_brokertopicmetrics_bytesin_total``); what Kafka does not have begins with
``odradek_``. Label sets are bounded: at most ``MAX_TOPICS`` topics have lines of their own (the
first that have been used), the lines without a label are the sum of all.

An exposition of many topics is written in turns of the loop and goes out in pieces, so a scrape of
10,000 topics never holds the loop. Answered from the first moment on: while the broker recovers
the lines of its logs are missing. HTTP is spoken only as far as a scraper needs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from broker import VERSION
from broker.log_limit import caused_by
from broker.protocol.api_versions import ApiKey
from broker.server.start_error import StartError
from broker.server.tasks import Turn
from broker.server.watchdog import BUCKETS_US

if TYPE_CHECKING:
    from broker.metadata.image import ClusterImage
    from broker.replication.replica_manager import HostedTopic
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

MAX_TOPICS: Final = 10_000
MAX_CLIENTS: Final = 4
MAX_HEAD_BYTES: Final = 8 * 1024
HEAD_SECONDS: Final = 5.0
#: A scraper that reads nothing for so long is cut off.
SEND_SECONDS: Final = 10.0
PIECE_BYTES: Final = 64 * 1024
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Metric, attribute of the counters, what it counts.
TRAFFIC: Final = (
    ("bytesin", "bytes_in", "Bytes of record batches that producers wrote."),
    ("bytesout", "bytes_out", "Bytes of record batches that consumers were sent."),
    ("messagesin", "records_in", "Records that producers wrote."),
    ("messagesout", "records_out", "Offsets that consumers were sent."),
    ("totalproducerequests", "produce_requests", "Partitions of Produce requests."),
    ("failedproducerequests", "failed_produce_requests", "Those of them that were refused."),
    ("totalfetchrequests", "fetch_requests", "Partitions told of in Fetch answers."),
    ("failedfetchrequests", "failed_fetch_requests", "Those of them that told an error."),
)


class MetricsEndpoint:
    """A small HTTP server on the broker's loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._census = Census()
        self.port = 0

    async def start(self) -> None:
        """Raises StartError when the address cannot be had and nobody said that it need not be."""
        config = self._broker.config
        address = config.metrics_listen
        if address is None:
            return
        try:
            self._server = await asyncio.start_server(
                self._serve, address[0], address[1], limit=MAX_HEAD_BYTES
            )
        except OSError as error:
            # asyncio writes a sentence of its own into strerror.
            code = error.errno or 0
            reason = os.strerror(code) if code > 0 else str(error)
            problem = (
                f"cannot listen on {address[0]}:{address[1]} (odradek.metrics.listen): {reason}"
            )
            if config.metrics_required:
                raise StartError(problem) from error
            logger.warning("%s; this broker's own figures for Prometheus are off", problem)
            return
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        clients = tuple(self._clients)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._clients) >= MAX_CLIENTS:
            writer.close()
            return
        self._clients.add(task)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
            await self._answer(head, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # gone, or no scraper
        except Exception:
            logger.exception("telling the metrics failed", extra=caused_by("scrapers"))
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD") or path not in (b"/metrics", b"/"):
            writer.write(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            await writer.drain()
            return
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nConnection: close\r\n\r\n".encode()
        )
        if method == b"HEAD":
            return
        piece: list[str] = []
        size = 0
        turn = Turn()
        for line in exposition(self._broker, self._census):
            piece.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                writer.write("".join(piece).encode())
                piece, size = [], 0
                await asyncio.wait_for(writer.drain(), SEND_SECONDS)
            if turn.is_over:
                await turn.pass_on()
        writer.write("".join(piece).encode())
        await asyncio.wait_for(writer.drain(), SEND_SECONDS)


def exposition(broker: Broker, census: Census) -> Iterator[str]:
    """Lines of the text format, each with its end; may be left between any two."""
    yield from _process(broker)
    yield from _loop(broker)
    yield from _tasks(broker)
    yield from _requests(broker)
    if broker.is_hosting:
        yield from _logs(broker)
        yield from _cluster(broker, census)
        yield from _retention(broker)
        yield from _cleaning(broker)
        yield from _traffic(broker)


def _metric(name: str, kind: str, text: str, value: float) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n"


def _process(broker: Broker) -> Iterator[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    opened, total = broker.recovery
    with open("/proc/self/statm", "rb") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    yield (
        "# HELP odradek_build_info What runs here.\n# TYPE odradek_build_info gauge\n"
        f'odradek_build_info{{version="{VERSION}"}} 1\n'
    )
    yield _metric(
        "process_cpu_seconds_total", "counter", "Processor time.", usage.ru_utime + usage.ru_stime
    )
    yield _metric("process_resident_memory_bytes", "gauge", "Memory.", resident)
    yield _metric(
        "process_open_fds", "gauge", "Open descriptors.", len(os.listdir("/proc/self/fd"))
    )
    yield _metric(
        "process_start_time_seconds", "gauge", "Start, since 1970.", broker.started_ms / 1000
    )
    yield _metric("odradek_ready", "gauge", "Whether clients are served.", int(broker.is_ready))
    yield _metric("odradek_recovery_logs_opened", "gauge", "Logs opened at the start.", opened)
    yield _metric("odradek_recovery_logs_total", "gauge", "Logs to be opened.", total)
    yield _metric(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Connections of clients.",
        sum(len(listener.connections) for listener in broker.listeners),
    )
    yield _metric(
        "odradek_connections_refused_total",
        "counter",
        "Connections over a limit.",
        broker.quota.refused_count,
    )


def _loop(broker: Broker) -> Iterator[str]:
    """How late the event loop was, as a histogram."""
    name = "odradek_loop_lag_seconds"
    lines = [f"# HELP {name} By how much the loop missed a timer.\n# TYPE {name} histogram\n"]
    seen = 0
    counts, sum_us = broker.watchdog.histogram()
    for count, bound_us in zip(counts, BUCKETS_US, strict=False):
        seen += count
        lines.append(f'{name}_bucket{{le="{bound_us / 1e6:g}"}} {seen}\n')
    total = sum(counts)
    lines.append(f'{name}_bucket{{le="+Inf"}} {total}\n')
    lines.append(f"{name}_sum {sum_us / 1e6}\n{name}_count {total}\n")
    yield "".join(lines)
    yield _metric(
        "odradek_slow_handlers_total",
        "counter",
        "Handlers that held the loop over 50 ms.",
        broker.watchdog.slow_handlers,
    )


def _tasks(broker: Broker) -> Iterator[str]:
    """A broker without any has one line with an empty label, so that the first failure is an increase."""
    troubles = broker.tasks.troubles
    for name, text, counts in (
        (
            "odradek_task_failures_total",
            "Background tasks that ended by an error.",
            {each.name: each.failures for each in troubles.values()},
        ),
        (
            "odradek_task_restarts_total",
            "Background tasks that began again after an error.",
            {each.name: each.restarts for each in troubles.values()},
        ),
    ):
        yield f"# HELP {name} {text}\n# TYPE {name} counter\n"
        for task, count in (counts or {"": 0}).items():
            yield f'{name}{{task="{_escaped(task)}"}} {count}\n'


def _requests(broker: Broker) -> Iterator[str]:
    name = "kafka_network_requestmetrics_requests_total"
    yield f"# HELP {name} Requests by API.\n# TYPE {name} counter\n"
    for key, count in sorted(broker.dispatcher.request_counts.items()):
        yield f'{name}{{request="{ApiKey(key).wire_name}"}} {count}\n'


def _logs(broker: Broker) -> Iterator[str]:
    directories = broker.logs.describe_directories()
    for name, text, place in (
        ("odradek_log_dir_total_bytes", "Size of the volume of a log directory.", 2),
        ("odradek_log_dir_free_bytes", "Free bytes of that volume.", 3),
    ):
        yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
        for each in directories:
            yield f'{name}{{directory="{_escaped(each.path)}"}} {each[place]}\n'
    offline = sum(each.is_offline for each in directories)
    name = "kafka_log_logmanager_offlinelogdirectorycount"
    yield _metric(name, "gauge", "Log directories that failed.", offline)


class _Counted(NamedTuple):
    """What the partitions of an image add up to."""

    image: ClusterImage
    partitions: int
    led: int
    leaderless: int
    under_replicated: int
    #: Sizes of the in-sync sets of each topic; how large they should be is told by its settings.
    in_sync: list[tuple[str, tuple[int, ...]]]


class Census:
    """Images never change: each is counted once, however often one asks."""

    def __init__(self) -> None:
        self.last: _Counted | None = None

    def take(self, image: ClusterImage, node_id: int) -> Iterator[str]:
        """``last`` is of this image then; several may be at it at once."""
        if self.last is not None and self.last.image is image:
            return
        partitions = led = leaderless = under_replicated = 0
        in_sync: list[tuple[str, tuple[int, ...]]] = []
        for number, topic in enumerate(image.topics.values()):
            for _, leader_id, _, _, replicas, isr, adding, _ in topic.partitions:
                led += leader_id == node_id
                leaderless += leader_id < 0
                under_replicated += len(isr) < len(replicas) - len(adding)
            partitions += len(topic.partitions)
            in_sync.append((topic.name, tuple([len(each.isr) for each in topic.partitions])))
            if not number % 64:
                yield ""
        self.last = _Counted(image, partitions, led, leaderless, under_replicated, in_sync)


def _cluster(broker: Broker, census: Census) -> Iterator[str]:
    yield from census.take(broker.image, broker.config.node_id)
    counted = census.last
    assert counted is not None
    image = counted.image
    hosted_topics = broker.replicas.topics
    is_controller = image.controller_id == broker.config.node_id
    under_min = 0
    for number, (name, in_sync) in enumerate(counted.in_sync):
        hosted = hosted_topics.get(name)
        least = hosted.config.min_insync_replicas if hosted is not None else 1
        for size in in_sync:
            under_min += size < least
        if not number % 64:
            yield ""
    offline = len(broker.logs.offline_partitions)
    for name, text, value in (
        ("server_replicamanager_partitioncount", "Partitions on this broker.", counted.partitions),
        ("server_replicamanager_leadercount", "Partitions that it leads.", counted.led),
        (
            "server_replicamanager_underreplicatedpartitions",
            "ISR is short.",
            counted.under_replicated,
        ),
        ("server_replicamanager_underminisrpartitioncount", "ISR is below its minimum.", under_min),
        ("server_replicamanager_offlinereplicacount", "Replicas that cannot be opened.", offline),
        (
            "controller_kafkacontroller_activecontrollercount",
            "Is this the controller?",
            int(is_controller),
        ),
        ("controller_kafkacontroller_globaltopiccount", "Topics.", len(image.topics)),
        ("controller_kafkacontroller_globalpartitioncount", "Partitions.", counted.partitions),
        (
            "controller_kafkacontroller_offlinepartitionscount",
            "No leader, or none that can open it.",
            counted.leaderless + offline,
        ),
    ):
        yield _metric(f"kafka_{name}", "gauge", text, value)


def _retention(broker: Broker) -> Iterator[str]:
    retention = broker.maintenance.retention
    for name, kind, text, value in (
        ("last_run_timestamp_seconds", "gauge", "Last run over all topics, since 1970; 0: never.",
         retention.last_run_ms / 1000),
        ("scheduler_silent", "gauge", "Whether a scheduler should ask and does not.",
         int(retention.is_scheduler_silent)),
        ("deleted_segments_total", "counter", "Segments that retention deleted.",
         retention.deleted_segments),
        ("deleted_bytes_total", "counter", "Their bytes.", retention.deleted_bytes),
    ):  # fmt: skip
        yield _metric(f"odradek_retention_{name}", kind, text, value)


def _cleaning(broker: Broker) -> Iterator[str]:
    """Compaction, by the names of Kafka's LogCleaner and LogCleanerManager."""
    cleaning = broker.maintenance.cleaning
    reports = cleaning.reports
    now_ms = broker.clock.monotonic_ms()
    last = next(reversed(reports.runs.values()), None)
    recopied = 100 * last.bytes_after / last.bytes_before if last and last.bytes_before else 0
    since_look_ms = now_ms - reports.looked_ms if reports.looked_ms else 0
    for name, kind, text, value in (
        ("logcleaner_cleaner_recopy_percent", "gauge", "Bytes kept by the last run.", recopied),
        ("logcleaner_max_buffer_utilization_percent", "gauge", "Of the table of keys, last run.",
         100 * last.table_use if last else 0),
        ("logcleaner_max_clean_time_secs", "gauge", "Duration of the last run.",
         last.duration_ms / 1000 if last else 0),
        ("logcleaner_max_compaction_delay_secs", "gauge", "Beyond max.compaction.lag.ms.",
         reports.max_delay_ms / 1000),
        ("logcleaner_deadthreadcount", "gauge", "Workers that failed and are not replaced yet.",
         cleaning.dead_worker_count),
        ("logcleanermanager_max_dirty_percent", "gauge", "Of the dirtiest log.",
         100 * reports.max_dirty_ratio),
        ("logcleanermanager_time_since_last_run_ms", "gauge", "Since logs were looked over.",
         since_look_ms),
    ):  # fmt: skip
        yield _metric(f"kafka_log_{name}", kind, text, value)
    stuck = [each.log for each in reports.uncleanable.values() if not each.log.is_deleted]
    counts = dict.fromkeys(broker.logs.directories, 0)
    sizes = dict(counts)
    for log in stuck:
        counts[log.log_dir] += 1
        sizes[log.log_dir] += log.size_in_bytes
    for name, text, values in (
        ("partitions_count", "Partitions whose last compaction failed.", counts),
        ("bytes", "Their bytes.", sizes),
    ):
        full_name = f"kafka_log_logcleanermanager_uncleanable_{name}"
        yield f"# HELP {full_name} {text}\n# TYPE {full_name} gauge\n"
        for path, value in values.items():
            yield f'{full_name}{{logDirectory="{_escaped(path)}"}} {value}\n'
    yield _metric("odradek_cleaning_runs_total", "counter", "Compactions.", reports.run_count)
    yield _metric(
        "odradek_cleaning_failures_total", "counter", "Those that failed.", reports.failure_count
    )


def _traffic(broker: Broker) -> Iterator[str]:
    """Families one after the other, as the format wants; topics that were never used have none."""
    replicas = broker.replicas
    used: list[tuple[str, HostedTopic]] = []
    for number, topic in enumerate(list(replicas.topics.values())):
        traffic = topic.traffic
        if (traffic.produce_requests or traffic.fetch_requests) and len(used) < MAX_TOPICS:
            used.append((_escaped(topic.name), topic))
        if not number % 256:
            yield ""
    for metric, attribute, text in TRAFFIC:
        name = f"kafka_server_brokertopicmetrics_{metric}_total"
        yield _metric(name, "counter", text, getattr(replicas.traffic, attribute))
        for label, topic in used:
            yield f'{name}{{topic="{label}"}} {getattr(topic.traffic, attribute)}\n'
    name = "odradek_topics_without_metrics"
    missing = max(0, len(replicas.topics) - len(used)) if len(used) == MAX_TOPICS else 0
    yield _metric(name, "gauge", "Topics past the bound of label sets.", missing)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
