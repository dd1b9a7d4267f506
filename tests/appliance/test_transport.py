"""Celery over files: a real worker process of Celery, with tasks that die under it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from appliance.celery import QUEUE, make_app
from appliance.transport import Channel
from tests.support import processes

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = """
import os, sys, time, warnings
from pathlib import Path
from appliance.celery import make_app
warnings.simplefilter("ignore")
app = make_app("", Path(sys.argv[1]))
app.conf.include = []
out = Path(sys.argv[1])

@app.task(name="note")
def note(text):
    (out / f"done-{text}").touch()

@app.task(name="hang")
def hang():
    (out / f"hanging-{os.getpid()}").touch()
    time.sleep(float(sys.argv[2]))
    (out / "done-hang").touch()

with app.connection_for_read() as connection:
    connection.default_channel.give_back()
app.Worker(pool="threads", concurrency=2, quiet=True, without_gossip=True, without_mingle=True,
           without_heartbeat=True, loglevel="ERROR").start()
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Celery]:
    found = make_app("", tmp_path)
    yield found
    found.close()


class Workers:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, hang_s: float) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.directory), str(hang_s)],
            cwd=REPOSITORY,
            env={**os.environ, "ODRADEK_DATA": str(self.directory)},
        )
        self.running.append(process)
        return process


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    for process in found.running:
        processes.end(process, signal.SIGKILL, 10)


def await_file(path: Path) -> None:
    processes.wait_until(path.exists, 90, str(path))


def test_tasks_arrive_unreadable_messages_are_passed_over_and_a_killed_worker_loses_nothing(
    app: Celery, workers: Workers, tmp_path: Path
) -> None:
    app.send_task("note", args=["before"])
    empty = tmp_path / "celery" / "ready" / f"00000000000000000000-x.{QUEUE}"
    empty.touch()
    app.send_task("hang")
    first = workers.start(hang_s=600)
    await_file(tmp_path / "done-before")
    await_file(tmp_path / f"hanging-{first.pid}")
    assert not empty.exists()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = workers.start(hang_s=0)
    await_file(tmp_path / "done-hang")
    app.send_task("note", args=["after"])
    await_file(tmp_path / "done-after")
    processes.end(second, signal.SIGTERM, 30)
    assert list((tmp_path / "celery" / "ready").iterdir()) == []
    assert list((tmp_path / "celery" / "taken").iterdir()) == []


def test_a_message_that_is_not_acknowledged_is_there_for_the_next(app: Celery) -> None:
    app.send_task("note", args=["x"])
    with app.connection_for_read() as connection:
        channel = connection.channel()
        assert isinstance(channel, Channel)
        assert channel.basic_get(QUEUE) is not None
        assert channel.basic_get(QUEUE) is None
        channel.close()
    with app.connection_for_read() as connection:
        channel = connection.channel()
        message = channel.basic_get(QUEUE)
        assert message is not None
        message.ack()
        channel.close()
    with app.connection_for_read() as connection:
        assert connection.channel().basic_get(QUEUE) is None
