"""Workers of compaction that fail: told as such until one has got through again.

That a partition which cannot be cleaned is told with its reason: ``tests/conformance/test_compaction.py``.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server import cleaning, cleaning_child
from broker.server.cleaning import Cleaning
from broker.server.commands import COMMANDS
from broker.server.metrics import Census, exposition
from tests.broker.server.running import Running, on_loop, running
from tests.support import record_batches, requests
from tests.support.record_batches import Record


def told_dead(r: Running) -> int:
    """As Prometheus is told."""
    name = "kafka_log_logcleaner_deadthreadcount "
    (line,) = [
        each
        for each in "".join(exposition(r.broker, Census())).splitlines()
        if each.startswith(name)
    ]
    return int(line.removeprefix(name))


async def compacted_topic(r: Running) -> None:
    await r.call(requests.create_topic, "orders", configs={"cleanup.policy": "compact"})
    now_ms = requests.now_ms()
    records = [Record(b"key", value, now_ms) for value in (b"old", b"new")]
    await r.call(requests.produce, "orders", record_batches.batch(records))


async def compact(r: Running) -> None:
    await COMMANDS["compact"](r.broker, {"topics": ["orders"], "roll": True})
    r.broker.maintenance.cleaning.tick(r.broker.clock.monotonic_ms())


@on_loop
async def test_a_worker_without_a_child_is_told_until_one_has_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, log_cleaner_backoff_ms="0") as r:
        await compacted_topic(r)
        reports = r.broker.maintenance.cleaning.reports
        assert told_dead(r) == 0
        with monkeypatch.context() as patch:
            patch.setattr(cleaning_child, "sys", SimpleNamespace(executable=str(tmp_path / "none")))
            await compact(r)
            await r.until(lambda: told_dead(r) == 1)
            (stuck,) = reports.uncleanable.values()
            assert "the cleaning process cannot be started" in stuck.reason
            await after_a_look(r)  # the log waits for its next attempt, nothing else is due
            assert told_dead(r) == 1
        await compact(r)
        await r.until(lambda: reports.run_count == 1)
        assert told_dead(r) == 0
        assert not reports.uncleanable


@on_loop
async def test_a_worker_that_ends_by_a_fault_is_told_until_one_has_looked_over_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    async with running(tmp_path, log_cleaner_backoff_ms="0") as r:
        await compacted_topic(r)
        with monkeypatch.context() as patch:
            patch.setattr(cleaning, "cleanable", fault)
            await compact(r)
            await r.until(lambda: told_dead(r) == 1)
        await r.until(lambda: "task cleaning failed" in caplog.text)
        await compact(r)
        await r.until(lambda: told_dead(r) == 0)


async def after_a_look(r: Running) -> None:
    """Until a worker has looked over all logs and gone again."""
    worker = r.broker.maintenance.cleaning
    before = worker.reports.looked_ms
    await r.until(lambda: r.broker.clock.monotonic_ms() > before)
    worker.tick(r.broker.clock.monotonic_ms())
    await r.until(lambda: worker.reports.looked_ms > before and not worker._workers)


def test_a_place_that_failed_is_filled_first_and_ends_with_its_thread() -> None:
    config = SimpleNamespace(
        log_cleaner_enable=True, log_cleaner_threads=3, log_cleaner_backoff_ms=0
    )
    spawned: list[str] = []

    def spawn(work: Any, name: str) -> None:
        spawned.append(name)
        work.close()

    broker: Any = SimpleNamespace(config=config, tasks=SimpleNamespace(spawn=spawn))
    found = Cleaning(broker)
    found._dead = {2: None}
    found.tick(0)
    assert found._workers == {2}
    found.tick(0)
    assert found._workers == {2, 0}
    assert found.dead_worker_count == 1
    config.log_cleaner_threads = 2
    assert found.dead_worker_count == 0
    found.tick(0)
    found.tick(0)
    assert found._workers == {2, 0, 1}
    assert len(spawned) == 3
