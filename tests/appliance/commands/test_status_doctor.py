from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.appliance.conftest import Odradek
from tests.support import judge
from tests.support.fixtures import Broker, broker_of_the_file
from tests.support.odradek import OdradekBroker

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
        done = on_broker("status", "--format", "json")
        assert done.code == 10
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
