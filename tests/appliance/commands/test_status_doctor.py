import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from appliance.checks import Verdict
from appliance.process_checks import check_beat
from broker.model.data_layout import LAYOUT, LAYOUT_NAME, RESTORING_NAME
from tests.appliance.conftest import Done, Odradek
from tests.support import judge, postgres, processes
from tests.support.cluster import Cluster
from tests.support.fixtures import Broker, broker_of_the_file
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.zookeeper import ZooKeeper

# Its health is that of everything on it.
broker = broker_of_the_file()


@pytest.fixture(autouse=True)
def own_web_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else on this machine may have the usual one."""
    monkeypatch.setenv("ODRADEK_WEB", f"127.0.0.1:{judge.free_port()}")


def test_a_cluster_that_is_well(on_broker: Odradek) -> None:
    (found,) = on_broker("status", "--format", "json").ok().data
    assert found["healthy"] is True
    assert found["controller"] == 1
    assert found["brokers"] == [1]
    assert on_broker("status").ok().lines[0].split() == ["HEALTHY", "yes"]


def test_trouble_has_exit_code_ten_and_a_name(on_broker: Odradek, topic: str) -> None:
    on_broker("topic", "alter", topic, "--set", "min.insync.replicas=2").ok()
    try:
        # An Apache Kafka's broker learns of the setting a moment after it was accepted.
        processes.wait_until(lambda: on_broker("status").code == 10, 30, "what is wrong")
        done = on_broker("status", "--format", "json")
        assert done.data[0]["under_min_isr"] == [f"{topic}-{index}" for index in range(3)]
    finally:
        on_broker("topic", "alter", topic, "--delete", "min.insync.replicas").ok()


def test_a_watch_ends_when_all_is_well(on_broker: Odradek) -> None:
    on_broker("status", "--watch", "--exit-when-healthy").ok()


def test_no_broker_is_no_answer(odradek: Odradek) -> None:
    assert odradek("-b", "127.0.0.1:1", "status").code == 3


def test_the_doctor_dials_what_is_advertised(
    on_broker: Odradek, broker: Broker, tmp_path: Path
) -> None:
    done = on_broker(
        "doctor", "--data", tmp_path, "--listen", broker.bootstrap, "--format", "json"
    ).ok()
    verdicts = {row["check"]: row["status"] for row in done.data}
    assert verdicts["advertised by broker 1"] == "OK"
    assert verdicts[f"port {broker.port}"] == "OK"
    assert verdicts["data directory"] == "OK"
    assert {"disk space", "clock", "java", "file descriptors", "file system"} <= verdicts.keys()


@pytest.fixture
def two_listeners(tmp_path: Path) -> Iterator[OdradekBroker]:
    """Clients of the second listener are told an address that nobody listens on."""
    inside, outside, nowhere = (judge.free_port() for _ in range(3))
    broker = OdradekBroker(
        tmp_path / "two",
        {
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            "advertised.listeners": f"INSIDE://localhost:{inside},OUTSIDE://127.0.0.1:{nowhere}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        },
    )
    broker.port = inside
    with broker:
        broker.properties["outside"] = str(outside)
        yield broker


def test_the_doctor_dials_what_each_listener_is_told(
    two_listeners: OdradekBroker, odradek: Odradek, tmp_path: Path
) -> None:
    look = ["doctor", "--data", tmp_path, "--listen", two_listeners.bootstrap, "--format", "json"]
    inside = odradek("-b", two_listeners.bootstrap, *look).ok()
    verdicts = {row["check"]: row["status"] for row in inside.data}
    assert verdicts["advertised by broker 1"] == "OK"
    # It may be meant for another network, so it is no failure from here.
    assert verdicts["listener OUTSIDE of broker 1"] == "WARN"
    assert "listener INSIDE of broker 1" not in verdicts
    outside = odradek("-b", f"127.0.0.1:{two_listeners.properties['outside']}", *look)
    assert outside.code == 10
    (failed,) = [row for row in outside.data if row["status"] == "FAIL"]
    assert failed["check"] in ("broker", "advertised by broker 1")
    assert "--advertised" in failed["hint"]


def test_without_a_broker_the_doctor_looks_at_the_machine(odradek: Odradek, tmp_path: Path) -> None:
    done = odradek(
        "-b", "127.0.0.1:1", "doctor", "--data", tmp_path, "--listen", judge.free_port(),
        "--format", "json",
    ).ok()  # fmt: skip
    verdicts = {row["check"]: row["status"] for row in done.data}
    assert verdicts["broker"] == "INFO"


def test_a_directory_that_cannot_be_used_fails(odradek: Odradek, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = odradek("-b", "127.0.0.1:1", "doctor", "--data", path, "--listen", judge.free_port())
    assert done.code == 10
    assert "FAIL" in done.out
    assert "--data DIR" in done.err


def looking(data: Path) -> list[object]:
    """Where no broker answers."""
    return [
        "-b", "127.0.0.1:1", "doctor", "--data", data, "--listen", f"127.0.0.1:{judge.free_port()}",
        "--format", "json",
    ]  # fmt: skip


def checks_of(done: Done) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in done.data}


def test_a_port_that_somebody_else_has_fails_with_who_to_ask(
    odradek: Odradek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as kafka,
        socket.create_server(("127.0.0.1", 0)) as web,
    ):
        ports = [each.getsockname()[1] for each in (kafka, web)]
        monkeypatch.setenv("ODRADEK_WEB", f"127.0.0.1:{ports[1]}")
        done = odradek(
            "-b", "127.0.0.1:1", "doctor", "--data", tmp_path, "--listen", f"127.0.0.1:{ports[0]}",
            "--format", "json",
        )  # fmt: skip
    assert done.code == 10
    found = checks_of(done)
    for name, port, option in (
        (f"port {ports[0]}", ports[0], "--listen"),
        ("web", ports[1], "--web"),
    ):
        assert found[name]["status"] == "FAIL"
        assert f"`ss -ltnp sport = :{port}`" in found[name]["hint"]
        assert f"{option} HOST:PORT" in found[name]["hint"]


def test_a_name_that_nobody_can_look_up_fails(odradek: Odradek, tmp_path: Path) -> None:
    advertised = {"advertised.listeners": "PLAINTEXT://nowhere.invalid:9092"}
    with OdradekBroker(tmp_path / "node", advertised) as node:
        done = odradek(
            "-b", node.bootstrap, "doctor", "--data", node.data, "--listen", node.bootstrap,
            "--format", "json",
        )  # fmt: skip
    assert done.code == 10
    failed = [row for row in done.data if row["status"] == "FAIL"]
    assert failed
    assert "nowhere.invalid" in str(failed)
    assert "--advertised HOST:PORT" in failed[0]["hint"]


def test_few_descriptors_and_no_java_are_told_with_what_mends_it(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    program = [sys.executable, "-m", "appliance", "-b", "127.0.0.1:1", "doctor"]
    more = ["--data", tmp_path, "--listen", f"127.0.0.1:{judge.free_port()}", "--format", "json"]
    done = subprocess.run(
        ["/usr/bin/prlimit", "--nofile=1000:1000", *program, *more],
        env={**environment, "PATH": str(tmp_path)}, cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {row["check"]: row for row in json.loads(done.stdout)["data"]}
    assert found["file descriptors"]["status"] == "WARN"
    assert "limit 1000" in found["file descriptors"]["detail"]
    assert "ulimit -Hn 65536" in found["file descriptors"]["hint"]
    assert found["java"]["status"] == "INFO"
    assert "apt install openjdk-17-jre-headless" in found["java"]["hint"]


def test_a_zookeeper_that_is_gone_fails_the_doctor(odradek: Odradek, tmp_path: Path) -> None:
    with (
        ZooKeeper(tmp_path) as server,
        Cluster(tmp_path, server, "/doctor", count=1) as cluster,
    ):
        node = cluster.brokers[1]
        look = [
            "-b", node.bootstrap, "doctor", "--data", node.data, "--listen", node.bootstrap,
            "--format", "json",
        ]  # fmt: skip
        well = checks_of(odradek(*look).ok())
        assert well[f"ZooKeeper {server.address}"]["status"] == "OK"
        server.kill9()
        done = odradek(*look)
        assert done.code == 10
        found = checks_of(done)
        assert found["ZooKeeper"]["status"] == "FAIL"
        assert "systemctl start zookeeper" in found[f"ZooKeeper {server.address}"]["hint"]
    # Without a broker that could say where it is, as none starts without it.
    settings = tmp_path / "server.properties"
    settings.write_text(f"zookeeper.connect={server.address}/doctor\n")
    done = odradek(
        *looking(tmp_path / "none"), "--config", settings,
    )  # fmt: skip
    assert done.code == 10
    assert checks_of(done)["ZooKeeper"]["status"] == "FAIL"


def test_schedules_that_nobody_watches_fail_once_the_serve_has_had_time(tmp_path: Path) -> None:
    """A worker that hangs has no lease any more, and is otherwise as one that works."""
    with closing(sqlite3.connect(tmp_path / "odradek.db")) as database:
        database.execute("CREATE TABLE dashboard_lease (name TEXT, holder TEXT, until TEXT)")
        database.execute(
            "INSERT INTO dashboard_lease VALUES ('scheduler', 'w', '2020-01-01 00:00:00')"
        )
        database.commit()
        assert check_beat(tmp_path, "", 5).verdict is Verdict.INFO
        found = check_beat(tmp_path, "", 500)
        assert found.verdict is Verdict.FAIL
        assert "systemctl restart odradek" in str(found.hint)
        database.execute("UPDATE dashboard_lease SET until = '9999-01-01 00:00:00'")
        database.commit()
        assert check_beat(tmp_path, "", 500).verdict is Verdict.OK


def looked_at(odradek: Odradek, data: Path) -> Done:
    return odradek(*looking(data))


def test_a_damaged_database_fails_the_doctor(odradek: Odradek, tmp_path: Path) -> None:
    path = tmp_path / "odradek.db"
    found = checks_of(looked_at(odradek, tmp_path).ok())["database"]
    assert (found["status"], "first start" in found["detail"]) == ("INFO", True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE users (name TEXT)")
        database.executemany("INSERT INTO users VALUES (?)", [("x" * 500,)] * 100)
        database.commit()
    assert checks_of(looked_at(odradek, tmp_path).ok())["database"]["status"] == "OK"
    content = path.read_bytes()
    for damaged in (b"no database" * 500, content[:8192] + b"\xff" * 4096 + content[12288:]):
        path.write_bytes(damaged)
        done = looked_at(odradek, tmp_path)
        assert done.code == 10
        found = checks_of(done)["database"]
        assert found["status"] == "FAIL"
        assert "is damaged" in found["detail"]
        assert "odradek backup restore" in found["hint"]


def test_a_postgresql_that_is_gone_fails_the_doctor(
    odradek: Odradek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "postgres").mkdir()
    with postgres.running(tmp_path / "postgres") as url:
        monkeypatch.setenv("DATABASE_URL", url)
        found = checks_of(looked_at(odradek, tmp_path / "data").ok())["database"]
        assert found["status"] == "OK"
        assert found["detail"].startswith("PostgreSQL ")
        assert "cannot be asked" in check_beat(tmp_path, url, 500).detail  # it has no tables yet
        with psycopg.connect(url) as connection:
            connection.execute(
                "CREATE TABLE dashboard_lease (name text, holder text, until timestamptz)"
            )
            connection.execute(
                "INSERT INTO dashboard_lease VALUES ('scheduler', 'w', now() - interval '1 s')"
            )
        assert check_beat(tmp_path, url, 500).verdict is Verdict.FAIL
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE dashboard_lease SET until = now() + interval '20 s'")
        assert check_beat(tmp_path, url, 500).detail == "schedules are watched by w"
    done = looked_at(odradek, tmp_path / "data")
    assert done.code == 10
    found = checks_of(done)["database"]
    assert found["status"] == "FAIL"
    assert "systemctl start postgresql" in found["hint"]


def test_what_serve_would_refuse_fails_the_doctor(odradek: Odradek, tmp_path: Path) -> None:
    for name, content, hint in (
        (
            LAYOUT_NAME,
            json.dumps({"layout": LAYOUT + 1, "version": "9.0"}),
            "that version or a later",
        ),
        (LAYOUT_NAME, "garbage", f"`rm {tmp_path / LAYOUT_NAME}`"),
        (RESTORING_NAME, "{}", "odradek backup restore"),
    ):
        (tmp_path / name).write_text(content)
        done = looked_at(odradek, tmp_path)
        assert done.code == 10
        found = checks_of(done)["data version"]
        assert found["status"] == "FAIL"
        assert hint in found["hint"]
        (tmp_path / name).unlink()
    assert "data version" not in checks_of(looked_at(odradek, tmp_path).ok())


def test_a_log_directory_that_has_failed_is_told(odradek: Odradek, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("not a directory")
    with OdradekBroker(tmp_path, {"log.dirs": f"{good},{bad}"}) as broker:
        told = odradek("-b", broker.bootstrap, "status", "--format", "json")
        assert told.code == 10
        assert told.data[0]["failed_directories"] == [f"{bad} of broker 1"]
        assert told.data[0]["reasons"] == [f"log directories have failed: {bad} of broker 1"]
        done = odradek("-b", broker.bootstrap, "doctor", "--data", broker.data, "--format", "json")
        assert done.code == 10
        (found,) = (row for row in done.data if row["check"] == "log directory")
        assert (found["status"], found["detail"].split()[0]) == ("FAIL", str(bad))
