"""What only an Odradek broker tells, asked through the control socket in the data directory.

Counters, segments, disks, recovery, load: things that the Kafka protocol has no words for. Only
the broker of this data directory is reached; ``None`` everywhere stands for "not told by this
cluster". Blocking, with a short timeout; free of Django. Never asked by a page of many topics: the
collector asks, pages read its snapshot (``partitions`` and ``node`` are cheap enough for one page).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

SOCKET_NAME: Final = "control.sock"
TIMEOUT_S: Final = 1.25
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class BrokerApiError(OSError):
    """The broker answered that it cannot, or something that is no answer."""


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    path: str
    is_offline: bool
    total_bytes: int | None
    free_bytes: int | None
    floor_bytes: int
    """Below so much free space producers are refused."""


@dataclass(frozen=True, slots=True)
class ZooKeeperReport:
    """A broker's session. ``state``: connected, suspended or expired, since ``since_ms``."""

    hosts: str
    chroot: str
    state: str
    since_ms: int
    session_id: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TaskTrouble:
    """Background work of the broker that ended by an error, and how often it has begun again."""

    task: str
    failures: int
    restarts: int
    last_ms: int
    last_error: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A broker, also while it recovers. Counters are None until it has recovered."""

    node_id: int
    cluster_id: str
    version: str
    is_ready: bool
    is_compiled: bool
    started_ms: int
    recovery_opened: int
    recovery_total: int
    connections: int
    rss_bytes: int
    cpu_seconds: float
    loop_bounds_us: tuple[int, ...]
    loop_counts: tuple[int, ...]
    """How late the broker's loop was: ticks by bucket, one more than bounds."""
    request_count: int
    directories: tuple[DirectoryReport, ...]
    open_listeners: tuple[str, ...]
    """Listeners beyond loopback that ask nobody who they are."""
    traffic: dict[str, int] | None
    offline_partition_count: int
    retention: dict[str, Any] | None = None
    """When it last ran, who asked, whether the scheduler is silent; None before recovery is over."""
    zookeeper: ZooKeeperReport | None = None
    """None: the broker keeps its metadata itself."""
    task_troubles: tuple[TaskTrouble, ...] = ()

    def loop_lag_ms(self, fraction: float) -> float:
        """Upper bound of the lag of this share of all ticks."""
        needed, seen = fraction * sum(self.loop_counts), 0
        for count, bound_us in zip(self.loop_counts, self.loop_bounds_us, strict=False):
            seen += count
            if count and seen >= needed:
                return bound_us / 1000
        return self.loop_bounds_us[-1] / 1000 if seen < needed else 0.0

    @property
    def loop_lag_p99_ms(self) -> float:
        return self.loop_lag_ms(0.99)

    @property
    def loop_lag_p999_ms(self) -> float:
        return self.loop_lag_ms(0.999)

    @property
    def loop_ticks(self) -> int:
        return sum(self.loop_counts)


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Rows as the broker's ``topics`` command gives them."""

    now: int
    deleted: int
    counters: tuple[str, ...]
    rows: list[dict[str, Any]]


class BrokerApi:
    """The broker whose data lies in ``data_directory``."""

    def __init__(self, data_directory: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._directory = data_directory
        self._timeout_s = timeout_s

    @property
    def is_there(self) -> bool:
        """Whether there is a control socket at all (a killed broker leaves one behind)."""
        return (self._directory / SOCKET_NAME).exists()

    def node(self) -> NodeReport | None:
        """None: no Odradek broker is reached here. Raises OSError when it does not answer."""
        answer = self.ask("node")
        return None if answer is None else _node(answer)

    def topics(self, since: int) -> Iterator[TopicPage]:
        """Pages of what has changed since then; nothing where there is no broker."""
        place: int | None = 0
        while place is not None:
            answer = self.ask("topics", **{"from": place, "since": since})
            if answer is None:
                return
            place = answer["next"]
            yield TopicPage(
                answer["now"], answer["deleted"], tuple(answer["counters"]), answer["topics"]
            )

    def partitions(self, topic: str) -> list[dict[str, Any]] | None:
        """With segments and flushed offsets; None: not told by this cluster."""
        found: list[dict[str, Any]] = []
        place: int | None = 0
        while place is not None:
            answer = self.ask("partitions", topic=topic, **{"from": place})
            if answer is None:
                return None
            found += answer["partitions"]
            place = answer["next"]
        return found

    def offline(self) -> list[dict[str, Any]] | None:
        """Partitions that recovery refused to open, with the reason."""
        answer = self.ask("offline")
        return None if answer is None else answer["partitions"]

    def ask(self, command: str, **arguments: Any) -> dict[str, Any] | None:
        """One command; None when nobody listens. Raises OSError: no answer, or a refusal."""
        with socket.socket(socket.AF_UNIX) as connection:
            if not self._say(connection, command, arguments):
                return None
            line = connection.makefile("rb").readline(MAX_ANSWER_BYTES)
        return _answer(line)

    def ask_patiently(
        self, command: str, tell: Callable[[], None], **arguments: Any
    ) -> dict[str, Any] | None:
        """``ask`` for what takes its time; ``tell`` is called each second and may raise to give up."""
        with socket.socket(socket.AF_UNIX) as connection:
            if not self._say(connection, command, arguments):
                return None
            connection.settimeout(1.0)
            line = bytearray()
            while not line.endswith(b"\n") and len(line) < MAX_ANSWER_BYTES:
                tell()
                try:
                    piece = connection.recv(65536)
                except TimeoutError:
                    continue
                if not piece:
                    break
                line += piece
        return _answer(bytes(line))

    def _say(self, connection: socket.socket, command: str, arguments: Mapping[str, Any]) -> bool:
        """Ask; False when nobody listens."""
        connection.settimeout(self._timeout_s)
        try:
            self._connect(connection)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        return True

    def _connect(self, connection: socket.socket) -> None:
        # A socket's path has room for 108 bytes only.
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        finally:
            os.close(descriptor)


@cache
def local() -> BrokerApi:
    """The broker of this process's data directory."""
    from django.conf import settings

    return BrokerApi(Path(settings.DATA_DIR))


def _answer(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        raise BrokerApiError("the broker ended before it answered") from None
    if not answer.get("ok"):
        raise BrokerApiError(str(answer.get("error")))
    return dict(answer)


def _node(answer: dict[str, Any]) -> NodeReport:
    loop = answer["loop"]
    return NodeReport(
        node_id=answer["node_id"],
        cluster_id=answer["cluster_id"],
        version=answer["version"],
        is_ready=answer["is_ready"],
        is_compiled=answer["is_compiled"],
        started_ms=answer["started_ms"],
        recovery_opened=answer["recovery"]["opened"],
        recovery_total=answer["recovery"]["total"],
        connections=answer["connections"],
        rss_bytes=answer["rss_bytes"],
        cpu_seconds=answer["cpu_seconds"],
        loop_bounds_us=tuple(loop["bounds_us"]),
        loop_counts=tuple(loop["counts"]),
        request_count=sum(answer["requests"].values()),
        directories=tuple(
            DirectoryReport(
                each["path"],
                each["is_offline"],
                each["total_bytes"] if each["total_bytes"] >= 0 else None,
                each["free_bytes"] if each["free_bytes"] >= 0 else None,
                each["floor_bytes"],
            )
            for each in answer["log_dirs"]
        ),
        open_listeners=tuple(
            f"{each['name']} {each['host'] or '*'}:{each['port']}"
            for each in answer["listeners"]
            if is_beyond_loopback(each["host"]) and not each["security_protocol"].startswith("SASL")
        ),
        traffic=answer.get("traffic"),
        offline_partition_count=answer.get("offline_partitions", 0),
        retention=answer.get("retention"),
        task_troubles=tuple(TaskTrouble(**each) for each in answer.get("task_troubles", ())),
        zookeeper=ZooKeeperReport(**told) if (told := answer.get("zookeeper")) else None,
    )


def is_beyond_loopback(host: str) -> bool:
    """Whether others than this machine can connect to what listens on ``host``."""
    return not (host in ("localhost", "::1") or host.startswith("127."))
