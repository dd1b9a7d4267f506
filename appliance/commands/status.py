"""``odradek status``: one look at the cluster, or a watch; exit code 10 when it is unhealthy."""

from __future__ import annotations

import time
from dataclasses import replace

import click

from appliance.failure import EXIT_NOT_CONNECTED, EXIT_OK, EXIT_UNHEALTHY, CommandError
from appliance.health import Health, judge
from appliance.lagging import lagging_of
from appliance.options import command, pass_session
from appliance.output import Report
from appliance.session import Session
from broker.clock import SystemClock
from dashboard.cluster import KafkaFailure

MIN_ISR_KEY = "min.insync.replicas"
WATCH_INTERVAL_S = 1.0


@command("status")
@click.option("-w", "--watch", is_flag=True, help="Go on, and write whenever something changes.")
@click.option("-e", "--exit-when-healthy", is_flag=True, help="With -w: end when all is well.")
@pass_session
def status(session: Session, watch: bool, exit_when_healthy: bool) -> int:
    """Is the cluster healthy? Exit code 0 if so, 10 if not, 3 when no broker answers."""
    if not watch:
        health = _look(session)
        _write(session, health)
        return EXIT_OK if health.is_healthy else EXIT_UNHEALTHY
    return _watch(session, exit_when_healthy)


def _look(session: Session) -> Health:
    gateway = session.gateway()
    cluster = gateway.cluster()
    found = gateway.topic_configs([topic.name for topic in cluster.topics], [MIN_ISR_KEY])
    min_isr = {
        name: int(views[0].value)
        for name, views in found.items()
        if not isinstance(views, KafkaFailure) and views and views[0].value is not None
    }
    lagging = lagging_of(gateway.moves.behind(cluster.topics))
    failed = gateway.failed_directories(cluster.brokers)
    return replace(
        judge(cluster, min_isr),
        lagging=lagging,
        failed_directories=tuple(
            f"{path} of broker {broker_id}" for broker_id, paths in failed.items() for path in paths
        ),
    )


def _watch(session: Session, exit_when_healthy: bool) -> int:
    last: Health | str | None = None
    while True:
        seen: Health | str
        try:
            seen = _look(session)
        except (CommandError, KafkaFailure) as error:
            if isinstance(error, CommandError) and error.exit_code != EXIT_NOT_CONNECTED:
                raise
            seen = str(error)
            session.forget_gateway()
        if seen != last:
            if isinstance(seen, Health):
                _write(session, seen)
            else:
                session.note(f"no answer: {seen}")
        if exit_when_healthy and isinstance(seen, Health) and seen.is_healthy:
            return EXIT_OK
        last = seen
        time.sleep(WATCH_INTERVAL_S)


def _write(session: Session, health: Health) -> None:
    now_ms = SystemClock().wall_ms()
    session.emit(
        Report(
            data=[health.as_object()],
            tables=[health.as_table(now_ms)],
            text=health.as_text(now_ms),
        )
    )
