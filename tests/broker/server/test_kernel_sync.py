"""Syncs by the kernel: each is answered once, its error told, its bounds kept."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.kernel_sync import CAPACITY, KernelSync


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def kernel(loop: asyncio.AbstractEventLoop) -> Iterator[KernelSync]:
    kernel = KernelSync.create(loop)
    if kernel is None:
        pytest.skip("this kernel has no asynchronous sync")
    yield kernel
    kernel.close()


def descriptors(directory: Path, count: int) -> list[int]:
    found = []
    for index in range(count):
        descriptor = os.open(directory / f"file-{index}", os.O_RDWR | os.O_CREAT)
        os.write(descriptor, b"data")
        found.append(descriptor)
    return found


def close(opened: list[int]) -> None:
    for descriptor in opened:
        os.close(descriptor)


def test_files_of_one_group_are_answered_together(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, kernel: KernelSync
) -> None:
    opened = descriptors(tmp_path, 5)
    answered: asyncio.Future[OSError | None] = loop.create_future()
    assert kernel.submit(opened, answered.set_result)
    assert not answered.done()
    assert loop.run_until_complete(answered) is None
    close(opened)


def test_groups_under_way_are_answered_one_by_one(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, kernel: KernelSync
) -> None:
    opened = descriptors(tmp_path, CAPACITY)
    answers = [loop.create_future() for _ in opened]
    for descriptor, answer in zip(opened, answers, strict=True):
        assert kernel.submit([descriptor], answer.set_result)
    assert loop.run_until_complete(asyncio.gather(*answers)) == [None] * CAPACITY
    close(opened)


def test_what_is_over_the_capacity_is_not_begun(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, kernel: KernelSync
) -> None:
    opened = descriptors(tmp_path, 1)
    answers: list[OSError | None] = []
    assert not kernel.submit(opened * (CAPACITY + 1), answers.append)
    assert not kernel.submit([], answers.append)
    done = loop.create_future()
    assert kernel.submit(opened * CAPACITY, done.set_result)
    assert loop.run_until_complete(done) is None
    assert not answers
    close(opened)


def test_a_descriptor_that_cannot_be_synced_is_not_begun(
    loop: asyncio.AbstractEventLoop, kernel: KernelSync
) -> None:
    reading, writing = os.pipe()
    assert not kernel.submit([writing], lambda error: None)
    close([reading, writing])
    assert not kernel.submit([reading], lambda error: None)
