"""compose.yaml as it stands: three brokers, ZooKeeper, and a dashboard with PostgreSQL and Redis; one broker dies."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import compose, container, processes
from tests.support.odradek import REPOSITORY
from tests.support.web import post

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
PASSWORD = "battery-staple-8"
BROKERS = ["broker-1", "broker-2", "broker-3"]
#: As somebody on the machine that runs the containers dials them.
BOOTSTRAP: dict[str, str | int | float | bool] = {
    "bootstrap.servers": "localhost:9093,localhost:9094,localhost:9095",
    "broker.address.family": "v4",
}


@pytest.fixture(scope="module")
def file() -> compose.File:
    return compose.File(REPOSITORY / "compose.yaml")


@pytest.fixture
def stack(file: compose.File, tmp_path: Path) -> Iterator[compose.Stack]:
    with container.Image("slim") as image, compose.Stack(file, "dashboard", image, tmp_path) as one:
        yield one


def test_services_of_the_cluster_are_what_its_dashboard_needs(file: compose.File) -> None:
    cluster = {name for name, each in file.services.items() if each.get("profiles") == ["cluster"]}
    assert set(file.in_order("dashboard")) == cluster
    assert cluster == {*BROKERS, "dashboard", "postgres", "redis", "zookeeper"}
    published = [port for name in file.services for port in file.ports(name)]
    assert {address for address, _, _ in published} == {"127.0.0.1"}
    assert len({outer for _, outer, _ in published}) == len(published)
    assert not any(file.ports(name) for name in ("postgres", "redis", "zookeeper"))


def test_nobody_starts_before_what_it_needs_is_healthy(file: compose.File) -> None:
    for name in file.services:
        assert set(file.needs(name).values()) <= {"service_healthy"}, name
        assert file.is_ours(name) or compose.Health.of_service(file.services[name]["healthcheck"])
    for broker in BROKERS:
        assert set(file.needs(broker)) == {"zookeeper"}
    assert set(file.needs("dashboard")) == {*BROKERS, "postgres", "redis"}


def test_what_was_acknowledged_outside_outlives_a_broker_and_the_dashboard_shows_it(
    stack: compose.Stack, tmp_path: Path
) -> None:
    assert all(map(stack.is_healthy, stack.names))
    first = [f"before-{number}" for number in range(100)]
    second = [f"after-{number}" for number in range(100)]
    leader = stack.in_network(compose.OUTSIDE, lambda: make_topic_and_write(first))
    stack.running[f"broker-{leader}"].kill()
    assert stack.is_healthy(
        "dashboard"
    )  # a cluster that lacks replicas is no reason to start it anew
    stack.in_network(compose.OUTSIDE, lambda: write(second))
    read = stack.in_network(compose.OUTSIDE, lambda: read_all(len(first) + len(second)))
    assert sorted(read) == sorted(first + second)

    password = (tmp_path / "dashboard" / "initial-admin-password").read_text().strip()
    stack.in_network(compose.OUTSIDE, lambda: look_at_dashboard(password))
    # A job goes by Redis to the worker, and what came of it into PostgreSQL.
    dashboard = stack.running["dashboard"]
    done = dashboard.execute("odradek", "job", "run", "Clean-up of old rows and files")
    assert done.returncode == 0, done.stdout + done.stderr
    query = "select state from dashboard_jobrun where job = 'clean-up' order by id desc limit 1"
    told = stack.postgres.run("psql", "-U", "odradek", "-d", "odradek", "-At", "-c", query)
    assert told == "ok\n"
    assert not (tmp_path / "dashboard" / "odradek.db").exists()
    clients = stack.run("redis", "redis-cli", "client", "list")
    assert stack.network.addresses["dashboard"] in clients

    assert stack.stop("dashboard") == 0
    for name in BROKERS:
        if name != f"broker-{leader}":
            assert stack.stop(name) == 0
            volume = tmp_path / f"data-{name[-1]}"
            assert (volume / "logs" / ".kafka_cleanshutdown").exists()
    stack.zookeeper.stop()
    assert not stack.is_healthy("zookeeper")


def make_topic_and_write(values: list[str]) -> int:
    """The leader, of a partition that all three have."""
    admin = AdminClient(BOOTSTRAP)
    admin.create_topics([NewTopic("orders", 1, -1)])["orders"].result(60)

    def isr() -> set[int]:
        topic = admin.list_topics("orders", timeout=30).topics["orders"]
        return set(topic.partitions[0].isrs) if topic.partitions else set()

    processes.wait_until(lambda: isr() == {1, 2, 3}, 60, "three replicas in sync", every=0.2)
    write(values)
    told = admin.list_topics("orders", timeout=30)
    ports = {number: (str(each.host), each.port) for number, each in told.brokers.items()}
    assert ports == {number: ("localhost", 9092 + number) for number in (1, 2, 3)}
    return int(told.topics["orders"].partitions[0].leader)


def write(values: list[str]) -> None:
    failed: list[object] = []

    def tell(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({**BOOTSTRAP, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce("orders", value, on_delivery=tell)
    assert producer.flush(120) == 0
    assert failed == []


def read_all(count: int) -> list[str]:
    consumer = Consumer({**BOOTSTRAP, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: list[str] = []

    def has_all() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) >= count

    try:
        processes.wait_until(has_all, 120, f"{count} records", every=0)
    finally:
        consumer.close()
    return found


def look_at_dashboard(password: str) -> None:
    with httpx.Client(
        base_url="http://localhost:8081", timeout=60, follow_redirects=True
    ) as client:
        page = client.get("login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        form = {"username": "admin", "password": password, "csrfmiddlewaretoken": token[1]}
        # What was made at the first start is good for choosing another.
        assert client.post("login/", data=form).url.path == "/account/password/"
        chosen = {"new_password1": PASSWORD, "new_password2": PASSWORD}
        answer = post(client, "account/password/", {"old_password": password, **chosen})
        assert answer.status_code == 200
        processes.wait_until(
            lambda: "orders" in client.get("topics/").text, 60, "the topic on its page", every=0.5
        )
        told = client.get("api/v1/topics/orders")
        assert told.status_code == 200, told.text
        assert len(told.json()["partitions"][0]["replicas"]) == 3
