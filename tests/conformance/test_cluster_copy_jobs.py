"""Exactly once on three nodes, while the job and any broker are killed: output equals input, once, in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.test_cluster_transactions import SETTINGS, values
from tests.support import copy_jobs, groups, processes
from tests.support.cluster import Cluster
from tests.support.job import Job
from tests.support.replicated import Load, create_topic, wait_for_isr
from tests.support.routing import GROUP_KEY, controller, coordinator, leader
from tests.support.transactions import TRANSACTION_KEY, describe
from tests.support.wire import Wire, WireError
from tests.support.zookeeper import ZooKeeper

GROUP = TRANSACTIONAL_ID = "copy"
PARTITIONS = 2
#: Between two values: the slowest job (aiokafka, some 24 a second on a busy machine) keeps up.
PAUSE_SECONDS = 0.05
AT_REST = ("Empty", "CompleteCommit", "CompleteAbort")


@pytest.mark.slow
@pytest.mark.timeout(1200 + 60 * copy_jobs.KILLS)
@pytest.mark.parametrize("program", copy_jobs.PROGRAMS)
def test_a_copy_job_is_killed_and_so_are_brokers(
    zookeeper: ZooKeeper, tmp_path: Path, program: Callable[[], list[str]]
) -> None:
    """The source grows all the while, so that every kill comes amid transactions."""
    dice = random.Random(program.__name__)
    chroot = f"/copying-{program.__name__}"
    with Cluster(tmp_path / "cluster", zookeeper, chroot, properties=SETTINGS) as cluster:
        source, target = (create_topic(cluster, PARTITIONS) for _ in range(2))
        command = [*program(), cluster.bootstrap, GROUP, TRANSACTIONAL_ID, source, target]
        victims: list[tuple[str, Callable[[], int] | None]] = [
            ("source", lambda: leader(cluster, source, dice.randrange(PARTITIONS))),
            ("target", lambda: leader(cluster, target, dice.randrange(PARTITIONS))),
            ("group's coordinator", lambda: coordinator(cluster, GROUP, GROUP_KEY)),
            ("coordinator", lambda: coordinator(cluster, TRANSACTIONAL_ID, TRANSACTION_KEY)),
            ("controller", lambda: controller(cluster)),
            ("job", None),
        ]
        with Job(command, tmp_path / "job.txt") as job:
            with Load(cluster, source, partitions=PARTITIONS, pause_seconds=PAUSE_SECONDS) as load:
                for round_ in range(copy_jobs.KILLS):
                    goal = job.line_count + dice.randrange(1, 8)
                    wait_for_job(job, lambda goal=goal: job.line_count >= goal)  # type: ignore[misc]
                    role, victim = victims[round_ % len(victims)]
                    print(f"kill {round_ + 1}: {role}", end="", flush=True)
                    kill_and_start(cluster, job, victim)
                    print(f"; {job.line_count} transactions so far", flush=True)
            assert load.failures == []
            inputs = [load.of_partition(each) for each in range(PARTITIONS)]
            wait_for_job(job, lambda: is_done(cluster, source, inputs))
            print(f"{copy_jobs.KILLS} kills, {job.line_count} transactions, {job.lives} jobs")
        wait_for_markers(cluster)
        for name in (source, target):
            wait_for_isr(cluster, name, set(cluster.brokers))
        for partition, chosen in enumerate(inputs):
            for topic, prefix in ((source, ""), (target, "copy of ")):
                expected = [f"{prefix}{value}".encode() for value in chosen]
                copy_jobs.check(values(cluster, topic, partition), expected, f"{topic}-{partition}")


def kill_and_start(cluster: Cluster, job: Job, victim: Callable[[], int] | None) -> None:
    """A broker, or without one the job."""
    if victim is None:
        job.kill()
        job.start()
    else:
        number = victim()
        print(f", broker {number}", end="", flush=True)
        cluster.brokers[number].kill9()
        cluster.brokers[number].start()


def wait_for_job(job: Job, is_further: Callable[[], bool]) -> None:
    """A job that gave up has a successor."""

    def is_so() -> bool:
        job.keep_alive()
        return is_further()

    try:
        processes.wait_until(is_so, 300 + 5 * copy_jobs.KILLS, "transactions", every=0.1)
    except TimeoutError as error:
        error.add_note(f"after {job.line_count} transactions of {job.lives} jobs:\n{job.errors}")
        raise


def wait_for_markers(cluster: Cluster) -> None:
    """Offsets take effect with the marker on their partition; others may come later."""
    number = coordinator(cluster, TRANSACTIONAL_ID, TRANSACTION_KEY)
    with Wire(cluster.brokers[number].address, timeout=60) as wire:
        processes.wait_until(
            lambda: describe(wire, TRANSACTIONAL_ID).transaction_state in AT_REST, 60, "the markers"
        )


def is_done(cluster: Cluster, source: str, inputs: list[list[str]]) -> bool:
    """Perhaps not, where nobody can be asked."""
    try:
        number = coordinator(cluster, GROUP, GROUP_KEY)
        with Wire(cluster.brokers[number].address, timeout=60) as wire:
            found = [
                groups.committed_offset(wire, GROUP, source, partition=each)
                for each in range(PARTITIONS)
            ]
    except (WireError, OSError, AssertionError):
        return False
    return found == [len(each) for each in inputs]
