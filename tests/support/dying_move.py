"""The program that moves a node into ZooKeeper, killed at a step: `python -m tests.support.dying_move STEP …` (its options).

A step is a write into ZooKeeper that is about to be sent, its answer, or a change of the data directory. It is
SIGKILL to itself, so nothing is tidied up; it ends as usual when there are not so many steps.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["ODRADEK_COMPILED"] = "0"  # compiled code calls itself past what is planted

from broker.adopt.disk import Disk
from broker.metadata.zookeeper_store import ZooKeeperStore
from broker.server.cluster.move_to_zookeeper import main


def plant(at: int) -> None:
    left = at

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def before(owner: Any, name: str) -> None:
        work: Callable[..., Any] = getattr(owner, name)

        def dying(*arguments: Any, **options: Any) -> Any:
            step()
            return work(*arguments, **options)

        setattr(owner, name, dying)

    submit = ZooKeeperStore.submit

    def dying_submit(store: ZooKeeperStore, operations: Any, done: Callable[[Any], None]) -> None:
        def answered(outcome: Any) -> None:
            step()
            done(outcome)

        step()
        submit(store, operations, answered)

    ZooKeeperStore.submit = dying_submit  # type: ignore[method-assign]
    for name in ("write", "sync_directory"):
        before(Disk, name)
    for name in ("rename", "unlink"):
        before(Path, name)


if __name__ == "__main__":
    plant(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
