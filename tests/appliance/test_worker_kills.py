"""A worker killed at any instant, again and again: each run ends, and none runs twice at a time.

Few kills by default; the long test is what the promise is held against, over files and a real Redis.
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import child
from tests.support import processes
from tests.support.kill_job import JOB
from tests.support.rabbitmq import rabbitmq_server
from tests.support.redis import redis_server

REPOSITORY = Path(__file__).resolve().parents[2]
QUEUE = """
import sys
from django.core.management import call_command
call_command("migrate", verbosity=0)
from tests.support import kill_job
kill_job.register()
from appliance import celery
from dashboard.services import audit, jobs
from django.db import transaction
count, directory, seed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
import random
chance = random.Random(seed)
with transaction.atomic():
    runs = [jobs.queue(job=kill_job.JOB, target=f"t{number}", trigger="person", actor=audit.SYSTEM,
                       schedule=None, parameters={"directory": directory, "fails": number % 10 == 0,
                                                  "seconds": chance.uniform(0, 0.6)})
            for number in range(count)]
for run in runs:
    jobs.ring(run)
    if run.pk % 3 == 0:
        jobs.ring(run)  # delivered twice
"""


class Site:
    """A data directory with a database, and workers that are killed in it."""

    def __init__(self, directory: Path, celery_url: str, *, is_soon: bool) -> None:
        self.data = directory / "data"
        self.traces = directory / "traces"
        self.data.mkdir()
        self.traces.mkdir()
        self.output = directory / "worker.txt"
        self._options = ["--soon"] if is_soon else []
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")
        }
        self.environment = {
            **kept,
            "DJANGO_SETTINGS_MODULE": "appliance.settings",
            "ODRADEK_DATA": str(self.data),
            "ODRADEK_CLUSTER": "127.0.0.1:1",
            "ODRADEK_LOG_LEVEL": "WARNING",
            **({"ODRADEK_CELERY_URL": celery_url} if celery_url else {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def python(self, code: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}", *arguments],
            cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.kill_job", *self._options],
                cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=self.environment,
            )  # fmt: skip

    def await_ready(self) -> None:
        process = self.process
        assert process is not None
        processes.wait_until(
            lambda: process.poll() is not None or child.is_ready(self.data, "worker"), 180, "worker"
        )
        assert process.poll() is None, processes.tail(self.output)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def rows(self) -> list[tuple[int, str]]:
        """(run, state) of each."""
        with contextlib.closing(sqlite3.connect(self.data / "odradek.db", timeout=30)) as database:
            found = database.execute("SELECT id, state FROM dashboard_jobrun WHERE job=?", (JOB,))
            return found.fetchall()

    def states(self) -> Counter[str]:
        return Counter(state for _, state in self.rows())

    def traces_of(self, kind: str) -> set[int]:
        return {int(path.name.rpartition("-")[2]) for path in self.traces.glob(f"{kind}-*")}


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        yield url


@pytest.fixture
def rabbitmq_url(tmp_path: Path) -> Iterator[str]:
    with rabbitmq_server(tmp_path) as url:
        yield url


def kill_again_and_again(site: Site, kills: int, runs: int, seed: int) -> None:
    chance = random.Random(seed)
    site.python(QUEUE, str(runs), str(site.traces), str(seed))
    try:
        for turn in range(kills):
            site.start()
            if turn % 4 == 3:
                time.sleep(chance.uniform(0, 3))  # also while it starts
            else:
                site.await_ready()
                time.sleep(chance.uniform(0, 0.9))
            site.kill()
        assert site.traces_of("started"), "nothing ran before the last kill"
        site.start()
        processes.wait_until(
            lambda: not site.states().keys() & {"queued", "running"}, 900, "all runs", every=0.5
        )
    finally:
        site.kill()
    assert_all_ended(site, runs)


def assert_all_ended(site: Site, runs: int) -> None:
    states = site.states()
    assert sum(states.values()) == runs
    assert states.keys() <= {"ok", "lost", "failed"}, states
    assert states["ok"]
    assert states["failed"]
    assert states["lost"], "no kill met a run"
    assert site.traces_of("twice") == set()
    assert site.traces_of("overlap") == set()
    well_ended = {run for run, state in site.rows() if state == "ok"}
    assert well_ended <= site.traces_of("started")
    print(dict(states))


@pytest.mark.timeout(280)
def test_runs_end_once_each_over_five_kills(tmp_path: Path) -> None:
    kill_again_and_again(Site(tmp_path, "", is_soon=True), kills=5, runs=40, seed=7)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_runs_end_once_each_over_two_hundred_kills(tmp_path: Path) -> None:
    kill_again_and_again(Site(tmp_path, "", is_soon=False), kills=200, runs=1000, seed=11)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_runs_end_once_each_over_kills_on_a_real_redis(tmp_path: Path, redis_url: str) -> None:
    kill_again_and_again(Site(tmp_path, redis_url, is_soon=False), kills=40, runs=200, seed=13)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_runs_end_once_each_over_kills_on_a_real_rabbitmq(
    tmp_path: Path, rabbitmq_url: str
) -> None:
    kill_again_and_again(Site(tmp_path, rabbitmq_url, is_soon=False), kills=40, runs=200, seed=17)
