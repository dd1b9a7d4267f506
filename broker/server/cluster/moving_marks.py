"""What a data directory knows of its move into ZooKeeper: files in ``metadata``, durable one by one.

``moving-to-zookeeper`` is there from just before the move may be done until its end is; with it no
broker starts in the directory. At the end the local store lies in ``moved-to-zookeeper``, for
people: nothing reads it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.adopt.disk import Disk
from broker.adopt.names import SETTINGS
from broker.config.broker_config import parse_properties
from broker.server.data_directory import IN_ZOOKEEPER, LOCAL_METADATA, MOVING

MOVED: Final = "moved-to-zookeeper"
CONNECT: Final = "zookeeper.connect"


class MovingMarks:
    """``connect``: what ``zookeeper.connect`` is to be afterwards."""

    def __init__(self, data_directory: Path, connect: str) -> None:
        self._settings = data_directory / SETTINGS
        self._directory = data_directory / "metadata"
        self._connect = connect
        self._disk = Disk()

    @property
    def moving_cluster_id(self) -> str | None:
        """Of a move that was begun and whose end is missing."""
        try:
            return (self._directory / MOVING).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None

    @property
    def is_moved(self) -> bool:
        return (self._directory / IN_ZOOKEEPER).exists() and self.moving_cluster_id is None

    @property
    def has_local_store(self) -> bool:
        return any(next(self._directory.glob(each), None) is not None for each in LOCAL_METADATA)

    def begin(self, cluster_id: str) -> None:
        self._disk.write(self._directory / MOVING, f"{cluster_id}\n".encode())

    def finish(self) -> None:
        """The local store is put aside, and the directory belongs to the cluster in ZooKeeper."""
        self._keep_setting()
        aside = self._directory / MOVED
        aside.mkdir(exist_ok=True)
        for pattern in LOCAL_METADATA:
            for path in sorted(self._directory.glob(pattern)):
                path.rename(aside / path.name)
        self._disk.sync_directory(aside)
        self._disk.write(self._directory / IN_ZOOKEEPER, b"")
        self.give_up()

    def give_up(self) -> None:
        (self._directory / MOVING).unlink(missing_ok=True)
        self._disk.sync_directory(self._directory)

    def _keep_setting(self) -> None:
        """So that the next start finds ZooKeeper without being told."""
        text = self._settings.read_text(encoding="utf-8") if self._settings.exists() else ""
        if parse_properties(text).get(CONNECT) != self._connect:
            line_end = "\n" if text and not text.endswith("\n") else ""
            self._disk.write(
                self._settings, f"{text}{line_end}{CONNECT}={self._connect}\n".encode()
            )
