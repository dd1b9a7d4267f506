"""A job that copies what is committed exactly once (`tests/support/copy_job.py`), killed now and then and started again.

E1  each record of the source is in the target once, and in its order
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.chaos.checker import Place
from tests.chaos.clients import assigned, read
from tests.chaos.load import LEAVE_SECONDS
from tests.chaos.workers import Workers
from tests.support import processes
from tests.support.odradek import REPOSITORY

GROUP: Final = "copying"
#: A job lives so long; one that ended by itself, because its transaction took too long, has a successor at once.
LIFE_SECONDS: Final = (3.0, 20.0)
#: Until the last job has copied what is left.
LEFT_SECONDS: Final = 120


class Copying:
    def __init__(
        self, bootstrap: str, source: str, target: str, partitions: int, directory: Path, seed: int
    ) -> None:
        self._bootstrap, self._source, self._target = bootstrap, source, target
        self._partitions = partitions
        self._output = directory / "copy-job.txt"
        self._dice = random.Random(f"{seed} copying")
        self._is_running = True
        self._is_killing = True
        self.jobs = 0
        self._workers = Workers()
        self.failed = self._workers.failed

    def __enter__(self) -> Self:
        self._runner = self._workers.start(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_running = False
        self._workers.join([self._runner], LEAVE_SECONDS)

    def _run(self) -> None:
        job = "tests.support.copy_job"
        what = [self._bootstrap, GROUP, "copying", self._source, self._target]
        while self._is_running:
            self.jobs += 1
            with self._output.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", job, *what],
                    cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                )  # fmt: skip
            killed_at = time.monotonic() + self._dice.uniform(*LIFE_SECONDS)
            while self._is_running and process.poll() is None:
                if self._is_killing and time.monotonic() > killed_at:
                    break
                time.sleep(0.05)
            process.kill()
            process.wait()

    def finish(self, acknowledged: Mapping[Place, str]) -> list[str]:
        """Failures, when all that is in the source is known and everybody is there."""
        self._is_killing = False
        source: dict[int, list[str]] = {partition: [] for partition in range(self._partitions)}
        for place in sorted(acknowledged):
            source[place.partition].append(f"copy of {acknowledged[place]}")
        target: dict[int, list[str]] = {partition: [] for partition in source}
        self._workers.bounded(LEFT_SECONDS + LEAVE_SECONDS, lambda: self._read(source, target))
        return self.failed + [
            failure
            for partition, values in source.items()
            for failure in judge(partition, values, target[partition])
        ]

    def _read(self, source: dict[int, list[str]], target: dict[int, list[str]]) -> None:
        """Until as much is there as has to be, and a moment longer."""
        committed = {"isolation.level": "read_committed"}
        consumer = assigned(self._bootstrap, self._target, self._partitions, **committed)

        def is_whole() -> bool:
            for message in consumer.consume(2000, 0.5):
                if message.error() is None:
                    place, value = read(message)
                    target[place.partition].append(value)
            return all(len(target[each]) >= len(values) for each, values in source.items())

        try:
            processes.wait_until(is_whole, LEFT_SECONDS, "everything copied")
            is_whole()
        except TimeoutError as error:
            self.failed.append(f"E1: {error}")
        consumer.close()


def judge(partition: int, source: list[str], target: list[str]) -> list[str]:
    """What is wrong with a copy."""
    if source == target:
        return []
    missing, more = Counter(source) - Counter(target), Counter(target) - Counter(source)
    if missing or more:
        told = f"{len(missing)} missing ({min(missing, default='')}), {more.total()} too many"
        return [f"E1: partition {partition} of the copy: {told} ({min(more, default='')})"]
    return [f"E1: partition {partition} of the copy is not in the order of its source"]
