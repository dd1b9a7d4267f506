"""``python -m broker.server.cluster.move_to_zookeeper``: see ``moving``.

``odradek cluster move-to-zookeeper`` runs it as a child: one JSON object a line on standard output,
``{"progress": ...}`` while it works, at the end ``{"report": ...}`` or ``{"refused": ...}``. The broker
must be stopped. Exit code 0 when ZooKeeper is in charge (or, abandoned, the local store is).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigError
from broker.metadata.files import DiskDirectory
from broker.metadata.journal import CorruptStoreError
from broker.metadata.local_store import LocalStore
from broker.metadata.store import SessionState, run_at_once
from broker.metadata.zookeeper_session import SessionFile
from broker.metadata.zookeeper_store import CannotConnectError, ZooKeeperStore
from broker.server.cluster import moving
from broker.server.cluster.moving_marks import CONNECT, MovingMarks
from broker.server.cluster.settings import zookeeper_address
from broker.server.data_directory import DataDirectoryLock, refuse_unfinished_adoption
from broker.server.main import add_setting_options, settings_of
from broker.server.start_error import StartError

SESSION_FILE: Final = "moving-session"


def say(value: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m broker.server.cluster.move_to_zookeeper")
    add_setting_options(parser)
    parser.add_argument("--abandon", action="store_true", help="take back what was staged")
    options = parser.parse_args(arguments)
    data = Path(options.data)
    try:
        settings = settings_of(options)
        if not data.is_dir():
            raise StartError(f"there is no data directory {data}")
        lock = DataDirectoryLock(data)
        try:
            refuse_unfinished_adoption(data)
            report = asyncio.run(_run(data, settings, is_abandoned=options.abandon))
        finally:
            lock.release()
    except (ConfigError, StartError, OSError) as error:
        say({"refused": {"message": str(error)}})
        return 1
    say({"report": report})
    return 0


async def _run(data: Path, settings: Mapping[str, str], *, is_abandoned: bool) -> dict[str, object]:
    address = zookeeper_address(resolve_broker_config(settings))
    if address is None:
        raise StartError("where is ZooKeeper? Say it by --zookeeper HOST:PORT/PATH")
    marks = MovingMarks(data, settings[CONNECT])
    if marks.is_moved:
        raise StartError(f"{data} belongs to a cluster in ZooKeeper already")
    loop = asyncio.get_running_loop()
    target = ZooKeeperStore(
        address,
        SessionFile(data / "metadata" / SESSION_FILE),
        lambda call: _post(loop, call),
    )
    try:
        try:
            await asyncio.to_thread(target.open)
        except CannotConnectError as error:
            raise StartError(str(error)) from error
        while target.session_state is not SessionState.CONNECTED:
            await asyncio.sleep(0.001)  # posted already

        async def read() -> tuple[str, dict[str, bytes]]:
            return await _local(data, marks, loop)

        if is_abandoned:
            await moving.abandon(read, target, marks)
            return {"outcome": "abandoned"}
        await moving.move(read, target, marks, _on_progress)
        return {"outcome": "moved"}
    finally:
        await asyncio.to_thread(target.close)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(call)


def _on_progress(done: int, total: int) -> None:
    say({"progress": {"nodes": done, "of_nodes": total}})


async def _local(
    data: Path, marks: MovingMarks, loop: asyncio.AbstractEventLoop
) -> tuple[str, dict[str, bytes]]:
    if not marks.has_local_store:
        raise StartError(f"{data} holds no cluster of its own: nothing to move")

    def post(call: Callable[[], None]) -> None:
        _post(loop, call)

    store = LocalStore(DiskDirectory(str(data / "metadata")), run_at_once(post), post)
    try:
        store.open()
    except CorruptStoreError as error:
        raise StartError(f"the metadata store is damaged: {error}") from error
    try:
        return await moving.read_local(store)
    finally:
        store.close()


if __name__ == "__main__":
    sys.exit(main())
