"""``odradek demo``: a shop that writes events, topics that data leaves in minutes, and two reports."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance import demo as shop
from appliance import people
from appliance.commands.spark import Progress, spark_home
from appliance.failure import EXIT_OK, CommandError, ItemError
from appliance.options import DURATION, command, data_option, pass_session
from appliance.session import Session
from dashboard.broker_api import BrokerApi
from dashboard.cluster import KafkaFailure
from dashboard.probe import join_address, reachable

if TYPE_CHECKING:
    from dashboard.gateway import Gateway

EXISTS = "TOPIC_ALREADY_EXISTS"
SCHEMA = (
    "kind string, at long, retailer string, user string, page string, words string, amount double"
)
REPORTS: tuple[dict[str, Any], ...] = (
    {
        "name": "demo-events",
        "kind": "events-over-time",
        "parameters": {"window": "1m", "group": "kind", "groups": "10", "time_field": "at"},
    },
    {
        "name": "demo-turnover",
        "kind": "sums-by-key",
        "parameters": {"key": "retailer", "amount": "amount", "distinct": "user"},
    },
)


@command("demo")
@data_option("The data directory of the `odradek serve` that runs.")
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 5000),
    default=20,
    show_default=True,
    help="Events a second.",
)
@click.option("--for", "duration_ms", type=DURATION, help="End after this time; else at Ctrl-C.")
@click.option("--seed", type=int, help="The same events again.")
@pass_session
def demo(
    session: Session, data: Path, rate: float, duration_ms: int | None, seed: int | None
) -> int:
    """Write shop events into topics, and have two reports computed every 5 minutes.

    Three of the topics show how data leaves: by time, by size, and by compaction.

    It writes to the broker of the data directory, or to the cluster that -b names.

    Spark, which computes them, is downloaded first where Java is there; without it the events are
    written all the same, and what is left out is said.
    """
    if not session.names_cluster:
        session.bootstrap = _broker_of(data)
    gateway = session.gateway()
    _make_topics(gateway)
    stopping = threading.Event()
    writer = _Shop(gateway, rate, random.Random(seed))  # noqa: S311 - a demo
    thread = threading.Thread(target=writer.run, args=(stopping,), name="shop")
    session.note(
        f"writing {rate:g} events a second to {', '.join(shop.TOPICS)}; Ctrl-C ends\n"
        f"{shop.CLICKS} keeps 3 minutes, {shop.METRICS} 256 KiB, {shop.STOCK} the latest record of "
        "each article: in some five minutes Retention in the dashboard shows what went, and why"
    )
    end = None if duration_ms is None else time.monotonic() + duration_ms / 1000
    thread.start()
    try:
        _set_up_reports(session, data)
        while thread.is_alive() and (end is None or time.monotonic() < end):
            thread.join(0.2)
    except KeyboardInterrupt:
        pass
    finally:
        stopping.set()
        thread.join()
    if writer.failure:
        raise CommandError(f"events could not be written: {writer.failure}")
    session.note(f"{writer.count} events were written")
    return EXIT_OK


def _broker_of(data: Path) -> str | None:
    """Where the broker of this data directory listens; None when it does not run here."""
    try:
        node = BrokerApi(data).ask("node")
    except OSError:
        return None
    if node is None:
        return None
    plain_first = sorted(
        node["listeners"], key=lambda each: each["security_protocol"] != "PLAINTEXT"
    )
    return join_address(*reachable(plain_first[0]["host"], plain_first[0]["port"]))


def _make_topics(gateway: Gateway) -> None:
    for name, topic in shop.TOPICS.items():
        made = gateway.create_topics([name], partitions=topic.partitions, configs=topic.configs)
        failure = made[name]
        if failure is not None and failure.code != EXISTS:
            raise CommandError(ItemError.of(failure, topic=name).as_line())


class _Shop:
    """Writes until it is told to stop, or cannot."""

    def __init__(self, gateway: Gateway, rate: float, dice: random.Random) -> None:
        self.count = 0
        self.failure = ""
        self._dice = dice
        self._pause_s = 1 / rate
        self._writers = {name: gateway.writer(name) for name in shop.TOPICS}

    def run(self, stopping: threading.Event) -> None:
        due = time.monotonic()
        while not stopping.is_set():
            for produced in shop.shop(self._dice, int(time.time() * 1000)):
                self._writers[produced.topic].send(self.count, produced.value, produced.key)
            self.count += 1
            due = max(due + self._pause_s, time.monotonic() - 1)
            stopping.wait(max(0.0, due - time.monotonic()))
            for writer in self._writers.values():
                writer.poll()
                if writer.failures:
                    self.failure = writer.failures[0][1].message
                    return
        for writer in self._writers.values():
            writer.flush(10)


def _set_up_reports(session: Session, data: Path) -> None:
    """Says what it leaves out, and why."""
    try:
        people.open_database(data)
    except CommandError as error:
        session.note(f"left out: the two reports, since {error}. {error.item.hint or ''}".rstrip())
        return
    if not _prepare(session, data):
        return
    import appliance.celery  # noqa: F401 - whom the worker is told by

    for each in REPORTS:
        _set_up(session, each)
    session.note(
        "both reports are computed now and every 5 minutes. Spark takes some seconds to start, one "
        "runs after the other: see Reports in the dashboard, or `odradek report list`"
    )


def _prepare(session: Session, data: Path) -> bool:
    from dashboard.spark.home import home_of
    from dashboard.spark.java import HINT, find_java
    from dashboard.spark.prepare import PrepareError, prepare

    if problem := find_java().problem:
        session.note(f"left out: the two reports, which need Java 17 or newer ({problem}). {HINT}")
        return False
    home = home_of(data.absolute(), spark_home())
    if not home.is_prepared and not home.is_carried:
        session.note("Spark is downloaded once: 460 MB")
    try:
        prepare(home, None, Progress(session).show)
    except PrepareError as error:
        session.note(f"left out: the two reports: {error}")
        return False
    return True


def _set_up(session: Session, wanted: dict[str, Any]) -> None:
    from dataclasses import asdict

    from dashboard.models import Report
    from dashboard.services import jobs, reports
    from dashboard.services.schedules import ScheduleRefused
    from spark_tasks.job import Format

    report = Report.objects.filter(name=wanted["name"]).first()
    try:
        if report is None:
            report = reports.save(
                actor=people.actor(),
                report=Report(
                    **wanted,
                    topics=shop.EVENTS,
                    format=asdict(Format("json", SCHEMA)),
                    range="@-1d",
                ),
            )
        if reports.schedule_of(report) is None:
            reports.set_schedule(actor=people.actor(), report=report, every=5, period="minutes")
        reports.start(actor=people.actor(), report=report)
    except (reports.ReportRefused, ScheduleRefused, KafkaFailure) as error:
        session.note(f"left out: {wanted['name']}: {error}")
    except jobs.AlreadyQueued:
        pass  # it is computed already
