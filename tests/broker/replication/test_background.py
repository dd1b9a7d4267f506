"""Which log is synced when: by threads, or by the kernel alone."""

from pathlib import Path

import pytest

from broker.replication.background import MAX_KERNEL_FLUSHES
from tests.broker.replication.build import World


@pytest.fixture
def kernel_world(tmp_path: Path) -> World:
    world = World([tmp_path])
    world.threads.can_datasync = True
    return world


def test_the_first_sync_of_a_log_takes_a_thread_and_the_next_ones_none(kernel_world: World) -> None:
    world = kernel_world
    partition = world.host(flush_messages=1)
    world.append(partition)
    world.threads.take("flush").run()  # new names and the leader epoch want more than fdatasync
    assert partition.high_watermark == 1
    world.append(partition)
    assert not world.threads.waiting("flush")
    world.threads.take("datasync").run()
    assert partition.high_watermark == 2


def test_appends_during_a_sync_share_the_next_one(kernel_world: World) -> None:
    world = kernel_world
    partition = world.host(flush_messages=1)
    world.append(partition)
    world.threads.run()
    for _ in range(5):
        world.append(partition)
    world.threads.take("datasync").run()
    assert partition.high_watermark == 2
    world.threads.take("datasync").run()
    assert partition.high_watermark == 6
    assert not world.threads.jobs


def test_a_failed_sync_by_the_kernel_is_final(kernel_world: World) -> None:
    world = kernel_world
    partition = world.host(flush_messages=1)
    world.append(partition)
    world.threads.run()
    world.append(partition)
    world.threads.take("datasync").run(OSError(5, "Input/output error"))
    assert partition.high_watermark == 1
    assert partition.is_closed


def test_syncs_by_the_kernel_are_bounded(kernel_world: World) -> None:
    world = kernel_world
    first = world.host(partitions=MAX_KERNEL_FLUSHES + 3, flush_messages=1)
    topic, _ = first.topic_partition
    partitions = [world.replicas.find(topic, index) for index in range(MAX_KERNEL_FLUSHES + 3)]
    for partition in partitions:
        world.append(partition)
    assert len(world.threads.jobs) == MAX_KERNEL_FLUSHES
    world.threads.run()
    assert all(partition.high_watermark == 1 for partition in partitions)
