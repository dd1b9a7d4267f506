"""How many connections there may be: in all, from one address, and by the process's descriptors.

The limits hold for all listeners together, as Kafka's do. Connections never take the descriptors
that logs need: a segment that cannot be created takes its directory offline.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from typing import Final

from broker.config.broker_config import BrokerConfig

#: Descriptors that log files share, if the process may have four times as many.
MAX_FILE_DESCRIPTORS: Final = 1024
#: Sockets that listen, the journal, threads that read and sync, files that are pinned.
RESERVED_DESCRIPTORS: Final = 128


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def file_descriptors(limit: int) -> int:
    """How many of ``limit`` are for log files."""
    return min(MAX_FILE_DESCRIPTORS, limit // 4)


class ConnectionQuota:
    """Counts every connection of the broker."""

    def __init__(self, config: Callable[[], BrokerConfig], limit: int) -> None:
        self._config = config
        self._room = max(1, limit - file_descriptors(limit) - RESERVED_DESCRIPTORS)
        self._per_address: Counter[str] = Counter()
        self.count = 0
        self.refused_count = 0

    def why_refused(self, address: str) -> str | None:
        """Which limit another connection from ``address`` would break."""
        config = self._config()
        allowed = config.max_connections_per_ip_overrides.get(
            address, config.max_connections_per_ip
        )
        if self._per_address[address] >= allowed:
            return "max.connections.per.ip"
        if self.count >= config.max_connections:
            return "max.connections"
        if self.count >= self._room:
            return "the limit of open files (ulimit -n)"
        return None

    def add(self, address: str) -> None:
        self.count += 1
        self._per_address[address] += 1

    def remove(self, address: str) -> None:
        self.count -= 1
        self._per_address[address] -= 1
        if self._per_address[address] <= 0:
            del self._per_address[address]
