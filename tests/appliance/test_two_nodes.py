"""Two web processes with data directories of their own on one PostgreSQL: what they share, and who acts."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dashboard.gateway import Gateway
from tests.support import postgres, processes
from tests.support.odradek import OdradekBroker
from tests.support.redis import redis_server
from tests.support.sinks import HttpSink, http_sink
from tests.support.web import REPOSITORY, WebProcess, post
from tests.support.websocket import Closed, WebSocket

pytestmark = pytest.mark.slow
CHANNEL_AND_RULE = """
import sys
from dashboard.alerting.defaults import make_default_rules
from dashboard.models import AlertChannel, AlertRule
make_default_rules()
AlertChannel.objects.create(name="sink", kind="webhook", url=sys.argv[1], may_reach_private=True, secret="s")
AlertRule.objects.exclude(kind="broker_silent").update(is_on=False)
AlertRule.objects.filter(kind="broker_silent").update(for_seconds=0, clear_seconds=0)
"""
HOLDER = """
from dashboard import leases
print(leases.holder_of("alerts"))
"""


MAKE_DUE = """
import datetime as dt, sys
from django.utils import timezone
from dashboard.models import Report
from dashboard.services import audit, reports, schedules
from dashboard.services.schedules import Asked
for number in range(6):
    report = Report.objects.create(name=f"r{number}", kind="consumer-lag")
    reports.set_schedule(actor=audit.SYSTEM, report=report, every=1, period="days")
ago = timezone.now() - dt.timedelta(days=1, hours=1)
schedules.ours().filter(name__contains="r").update(enabled=False)
for number in range(6):
    task = reports.schedule_of(Report.objects.get(name=f"r{number}"))
    type(task).objects.filter(pk=task.pk).update(last_run_at=ago, enabled=True)
"""
HOLD = """
import sys
from dashboard import leases
assert leases.hold("report", "somebody", float(sys.argv[1]))
"""
RING = """
from dashboard.models import JobRun
from dashboard.services import jobs
for run in JobRun.objects.filter(job="report", state="queued"):
    jobs.ring(run)
"""
RUNS = """
import json
from dashboard.models import JobRun
rows = JobRun.objects.filter(job="report")
print(json.dumps([[run.pk, run.target, run.state, run.worker, run.trigger] for run in rows]))
"""


@dataclass(frozen=True)
class Nodes:
    first: WebProcess
    second: WebProcess
    broker: OdradekBroker
    sink: HttpSink

    def holder(self) -> int:
        """Process id of the one that evaluates alerts."""
        return int(self.first.run_python(HOLDER).strip().rpartition(":")[2])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with (
        postgres.running(tmp_path) as url,
        OdradekBroker(tmp_path / "broker") as broker,
        http_sink() as sink,
    ):
        settings = {
            "database_url": url,
            "secret_key": "k" * 50,
            "admin_password": "correct-horse-9",
        }
        found = [WebProcess(tmp_path / name, broker.bootstrap, settings) for name in ("a", "b")]
        first, second = found
        second.sessions = {"made": "by the first"}
        # Both make the tables and the first admin, at the same time.
        starts = [threading.Thread(target=one.start) for one in found]
        try:
            for start in starts:
                start.start()
            for start in starts:
                start.join(240)
            second.cookie_name, second.sessions = first.cookie_name, first.sessions
            assert first.sessions
            yield Nodes(first, second, broker, sink)
        finally:
            for one in found:
                one.close()


@pytest.mark.timeout(600)
def test_two_workers_compute_one_report_at_a_time_and_one_of_them_is_beat(tmp_path: Path) -> None:
    """Each node has a worker with a beat; database and queue are shared."""
    traces = tmp_path / "traces"
    traces.mkdir()
    with (
        postgres.running(tmp_path) as url,
        OdradekBroker(tmp_path / "broker") as broker,
        redis_server(tmp_path) as redis_url,
    ):
        settings = {
            "database_url": url, "celery_url": redis_url, "secret_key": "k" * 50,
            "admin_password": "correct-horse-9", "log_level": "INFO",
        }  # fmt: skip
        webs = [WebProcess(tmp_path / name, broker.bootstrap, settings) for name in ("a", "b")]
        outputs = [tmp_path / f"worker-{name}.txt" for name in ("a", "b")]
        workers: list[subprocess.Popen[bytes]] = []
        with webs[0]:
            run_python = webs[0].run_python
            try:
                for web, output in zip(webs, outputs, strict=True):
                    web.data.mkdir(parents=True, exist_ok=True)
                    workers.append(report_worker(web, traces, output))
                for output in outputs:
                    processes.wait_until(
                        lambda output=output: "ready for jobs" in output.read_text(),
                        120,
                        "a worker",
                    )

                # While somebody else computes, a run waits on each node.
                run_python(HOLD, "600")
                run_python(MAKE_DUE)

                def both_wait() -> bool:
                    run_python(RING)  # a bell that finds a busy worker is heard by nobody
                    return len(list(traces.glob("waited-*"))) == 2

                processes.wait_until(both_wait, 120, "a run on each node", every=0.5)
                assert not list(traces.glob("done-*"))
                run_python(HOLD, "0")
                found: list[list[str]] = []

                def is_over() -> bool:
                    found[:] = json.loads(run_python(RUNS))
                    return all(row[2] not in ("queued", "running") for row in found)

                processes.wait_until(is_over, 240, "the reports", every=0.5)
                # Each due time led to one run, though two looked; both nodes computed, in turn.
                assert sorted(row[1] for row in found) == [f"r{number}" for number in range(6)]
                assert {row[2] for row in found} == {"ok"}
                assert {row[4] for row in found} == {"schedule"}
                assert len({row[3] for row in found}) == 2
                assert len(list(traces.glob("done-*"))) == 6
                assert not list(traces.glob("overlap-*"))
                watching = "schedules are watched from here"
                beats = [output.read_text().count(watching) for output in outputs]
                assert sorted(beats) == [0, 1]

                # The one that is beat dies: the other goes on within the lease.
                dies = beats.index(1)
                workers[dies].kill()
                workers[dies].wait()
                processes.wait_until(
                    lambda: watching in outputs[1 - dies].read_text(), 90, "the other beat"
                )
            finally:
                for worker in workers:
                    processes.end(worker, signal.SIGTERM, 60)


def report_worker(web: WebProcess, traces: Path, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.report_job", str(traces), "1"],
            cwd=REPOSITORY, env=web.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip


async def open_tail(web: WebProcess, user: str, topic: str) -> WebSocket:
    """Returns when the tail is going."""
    headers = {"Cookie": f"{web.cookie_name}={web.sessions[user]}"}
    socket = await WebSocket.open(f"{web.url}/tail/socket/", origin=web.url, headers=headers)
    socket.send_json({"type": "start", "topics": [topic], "filter": "", "last": 0})
    while True:
        frame = await socket.receive_json(60)
        socket.send_json({"type": "ack", "seq": frame["seq"]})
        if any(one["state"] == "live" for one in frame.get("topics", [])):
            return socket


async def next_row(socket: WebSocket) -> str:
    while True:
        frame = await socket.receive_json(60)
        socket.send_json({"type": "ack", "seq": frame["seq"]})
        if frame["rows"]:
            value: str = frame["rows"][0]["value"]["text"]
            return value


async def end_of(socket: WebSocket) -> int:
    with pytest.raises(Closed) as closed:
        while True:
            frame = json.loads(await socket.receive())
            if frame["type"] == "frame":
                socket.send_json({"type": "ack", "seq": frame["seq"]})
    return closed.value.code


@pytest.mark.timeout(600)
def test_sessions_and_rights_are_shared_tails_work_on_both_and_an_alert_is_told_once(
    nodes: Nodes,
) -> None:
    first, second = nodes.first, nodes.second
    Gateway(nodes.broker.bootstrap).create_topics(["orders"], partitions=1)

    # A person signed in on one is signed in on the other, and out on both at once.
    with second.client("olga") as client:
        assert client.get("topics/").status_code == 200
        assert post(client, "account/preferences/", {"theme": "dark"}).status_code == 200

    async def tails() -> None:
        sockets = [await open_tail(web, "olga", "orders") for web in (first, second)]
        producer = Producer({"bootstrap.servers": nodes.broker.bootstrap})
        producer.produce("orders", "hello")
        await asyncio.to_thread(producer.flush, 30)
        assert [await next_row(socket) for socket in sockets] == ["hello", "hello"]
        with first.client("ada") as admin:
            users = admin.get("api/v1/users").json()["users"]
            number = next(one["id"] for one in users if one["username"] == "olga")
            form = {"role": "operator", "readable_topics": "*", "exportable_topics": "*"}
            await asyncio.to_thread(post, admin, f"users/{number}/", form)
        ends = await asyncio.gather(*(end_of(socket) for socket in sockets))
        assert ends == [4401, 4401]

    asyncio.run(tails())
    with second.client("olga") as client:
        assert client.get("topics/").headers["location"].startswith("/login/")

    # One of them evaluates; when it dies the other goes on where it stopped.
    first.run_python(CHANNEL_AND_RULE, nodes.sink.url)
    nodes.broker.stop()
    processes.wait_until(lambda: bool(nodes.sink.accepted("firing")), 120, "the alert", every=0.2)
    holder = nodes.holder()
    dies, lives = (first, second) if holder == first.pid else (second, first)
    assert dies.process is not None
    processes.end(dies.process, signal.SIGKILL, 20)
    dies.process = None
    nodes.broker.start()

    def is_over() -> bool:
        with lives.client("vera") as client:
            client.get("")
        return bool(nodes.sink.accepted("resolved"))

    processes.wait_until(is_over, 120, "its end", every=0.2)
    assert nodes.holder() == lives.pid
    events = [body["event"] for body in nodes.sink.accepted()]
    assert events == ["firing", "resolved"]
