"""The data directory as a whole: its lock, whose cluster it belongs to, what its file system can."""

from __future__ import annotations

import base64
import fcntl
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker import VERSION
from broker.adopt.names import STAGING
from broker.metadata import znodes
from broker.metadata.store import MetadataStore, Node
from broker.model.data_layout import RESTORING_NAME, newer_than_known
from broker.model.ids import TopicPartition
from broker.server.start_error import StartError
from broker.server.tasks import called_back
from broker.storage.checkpoints import parse_meta_properties
from broker.storage.layout import META_PROPERTIES, partition_directory_name

LOCK_NAME: Final = "broker.lock"
#: In ``metadata``, which holds none then: it is kept in ZooKeeper.
IN_ZOOKEEPER: Final = "in-zookeeper"
LOCAL_METADATA: Final = ("journal-*", "snapshot-*")
#: In ``metadata`` while a move into ZooKeeper may be done or not (``cluster.moving``).
MOVING: Final = "moving-to-zookeeper"
#: File systems where a mapped tail is as good as pwrite: a full disk shows as an error of the
#: write that grows it, and map, pread and sendfile share one page cache.
MAPPABLE: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs"})


class DataDirectoryLock:
    """Held as long as the process lives; two brokers never share a data directory."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(
            directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise StartError(
                f"{directory} is in use by another broker (process {holder or 'unknown'});"
                " stop it, or choose another --data"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def refuse_newer_layout(directory: Path) -> None:
    """Raises StartError when a newer Odradek has changed what lies where."""
    version = newer_than_known(directory)
    if version is not None:
        raise StartError(
            f"{directory} was written by Odradek {version}, which is newer than this {VERSION};"
            " run that version or a later one"
        )


def refuse_unfinished_restore(directory: Path) -> None:
    """Half of a backup must not be mistaken for all of it."""
    if (directory / RESTORING_NAME).exists():
        raise StartError(
            f"{directory} is being restored from a backup, which was interrupted;"
            " call `odradek backup restore` again"
        )


def refuse_unfinished_adoption(directory: Path) -> None:
    """Half of an adopted Kafka's partitions must not be mistaken for all of them."""
    if (directory / STAGING).exists():
        raise StartError(
            f"{directory} is being adopted from a Kafka, which was interrupted;"
            " call `odradek adopt` again to finish it"
        )


def claim_for_zookeeper(directory: Path) -> None:
    """Mark ``metadata`` as kept elsewhere; StartError when it holds a cluster of its own, whose
    logs the other cluster would not know."""
    refuse_unfinished_move(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if any(next(directory.glob(pattern), None) is not None for pattern in LOCAL_METADATA):
        raise StartError(
            f"{directory} holds the metadata of a cluster of its own, which zookeeper.connect would"
            " leave behind; call `odradek cluster move-to-zookeeper`, or start with an empty data directory"
        )
    (directory / IN_ZOOKEEPER).touch()


def refuse_without_zookeeper(directory: Path) -> None:
    """Raises StartError when the directory belongs to a cluster in ZooKeeper."""
    refuse_unfinished_move(directory)
    if (directory / IN_ZOOKEEPER).exists():
        raise StartError(
            f"{directory.parent} belongs to a cluster in ZooKeeper: set zookeeper.connect"
        )


def refuse_unfinished_move(directory: Path) -> None:
    """Nobody but the move can tell whether this store or ZooKeeper is in charge."""
    if (directory / MOVING).exists():
        raise StartError(
            f"the move of {directory.parent} into ZooKeeper was interrupted; call `odradek cluster"
            " move-to-zookeeper` again to finish it, or with --abandon to take it back"
        )


class Identity(NamedTuple):
    """``is_new``: the metadata store is empty, so it cannot say that a topic was deleted."""

    cluster_id: str
    is_new: bool


async def find_identity(store: MetadataStore, log_dirs: Sequence[str]) -> Identity:
    """The cluster that the store or a log directory names, else a new one."""
    node = await called_back(store.get, znodes.CLUSTER_ID)
    if isinstance(node, Node):
        return Identity(znodes.decode_cluster_id(node.data), False)
    return Identity(cluster_in(log_dirs) or new_cluster_id(), True)


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def cluster_in(log_dirs: Sequence[str]) -> str | None:
    """The cluster that log directories belong to, if they have been used."""
    for log_dir in log_dirs:
        path = Path(log_dir) / META_PROPERTIES
        if path.exists():
            meta = parse_meta_properties(path.read_bytes())
            if meta is not None and meta.cluster_id:
                return meta.cluster_id
    return None


def refuse_missing_logs(log_dirs: Sequence[str], partitions: Iterable[TopicPartition]) -> None:
    """Raises StartError where a log directory is empty, so that records which only this broker has are
    gone, or not mounted: begun anew they would have been written never."""
    empty = [each for each in log_dirs if _is_empty(Path(each))]
    if not empty:
        return
    present = {name for each in log_dirs for name in _names_in(Path(each))}
    missing = [each for each in partitions if partition_directory_name(each) not in present]
    if missing:
        raise StartError(
            f"{empty[0]} is empty, but {len(missing)} partitions that only this broker has should lie there, {missing[0]} among"
            " them: is it mounted? If what it held is lost, odradek.log.dirs.begin.empty=true begins them anew"
        )


def _is_empty(directory: Path) -> bool:
    """Nobody has used it. One that cannot be read is not empty: it will be offline."""
    try:
        (directory / META_PROPERTIES).stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def may_map(mode: str, log_dirs: Sequence[str]) -> bool:
    """Whether hot tails may be mapped (``odradek.log.append``)."""
    if mode != "auto":
        return mode == "map"
    return all(file_system_type(log_dir) in MAPPABLE for log_dir in log_dirs)


def file_system_type(path: str) -> str:
    """Type of the mount that ``path`` (or its nearest existing parent) lies on; "" if unknown."""
    real = os.path.realpath(path)
    best, best_type = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        _, mount_point, mount_type, *_ = line.split(" ")
        inside = real == mount_point or real.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best):
            best, best_type = mount_point, mount_type
    return best_type
