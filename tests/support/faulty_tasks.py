"""Our broker with faults in its background work: `python -m tests.support.faulty_tasks DIRECTORY …` (its options).

A file in DIRECTORY with the name of a fault makes that work raise; one that holds a number makes it raise so
often, and goes then. Pauses before a task begins again are a tenth of the usual ones.

``follow`` holds the name of a topic instead: nothing is appended to its partitions as a follower. While ``hang`` exists, a
stop cannot close the logs, as with a disk that does not answer, and one after a failure takes two seconds
instead of twenty.
"""

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["ODRADEK_COMPILED"] = "0"  # compiled code calls itself past what is planted

from broker.coordinator.group.rebalance import Rebalance
from broker.coordinator.transaction.shard import TransactionShard
from broker.server import run, tasks
from broker.server.cluster.isr_changes import IsrChanges
from broker.server.cluster.membership import Membership
from broker.server.cluster.replica_fetcher import ReplicaFetcher
from broker.server.listener import Listener
from broker.server.main import serve
from broker.server.maintenance import Maintenance
from broker.server.retention import Retention
from broker.storage.filesystem import RealFile
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

FAULTS: dict[str, tuple[type[Any], str]] = {
    "propose": (IsrChanges, "_proposals"),
    "fetch": (ReplicaFetcher, "_forget_closed"),
    "pull": (Membership, "_pull_from"),
    "apply": (Membership, "_apply"),
    "event": (Membership, "_on_controller"),
    "accept": (Listener, "_admit"),
    "retention": (Retention, "_run"),
    "flush": (Maintenance, "_flush_due"),
    "session": (Rebalance, "_on_session_over"),
    "timeout": (TransactionShard, "_on_timeout"),
    "write": (RealFile, "append"),
}


def strike(file: Path) -> None:
    try:
        left = file.read_text()
    except FileNotFoundError:
        return
    if left:
        if int(left) <= 1:
            file.unlink()
        else:
            file.write_text(str(int(left) - 1))
    if file.name == "write":
        raise OSError(errno.EIO, "injected: write")
    raise RuntimeError(f"injected: {file.name}")


def plant(directory: Path) -> None:
    def planted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any) -> Any:
            strike(directory / name)
            return work(*arguments)

        return faulty

    for name, (owner, method) in FAULTS.items():
        setattr(owner, method, planted(name, getattr(owner, method)))
    plant_in_logs(directory)
    tasks.FIRST_PAUSE_SECONDS /= 10
    tasks.LAST_PAUSE_SECONDS /= 10


def plant_in_logs(directory: Path) -> None:
    append, close = Log.append_as_follower, LogManager.close

    def append_or_fail(log: Log, *arguments: Any) -> Any:
        file = directory / "follow"
        if file.exists() and file.read_text() == log.topic_partition.topic:
            raise RuntimeError("injected: follow")
        return append(log, *arguments)

    def close_or_hang(logs: LogManager) -> None:
        while (directory / "hang").exists():
            time.sleep(0.01)
        close(logs)

    Log.append_as_follower = append_or_fail  # type: ignore[method-assign]
    LogManager.close = close_or_hang  # type: ignore[method-assign]
    if (directory / "hang").exists():
        run.FAILED_STOP_SECONDS = 2.0  # type: ignore[misc]


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
    sys.exit(serve(sys.argv[2:]))
