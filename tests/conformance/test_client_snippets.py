"""The programs of ``docs/clients.md``, run as they stand there but for the broker's address."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apache, foreign, judge, requests, spark
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.wire import Wire

PAGE = REPOSITORY / "docs" / "clients.md"
ADDRESS = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with OdradekBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        yield started


def program(heading: str, path: Path, broker: OdradekBroker) -> Path:
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.M)
    (found,) = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    assert ADDRESS in found
    path.write_text(found.replace(ADDRESS, broker.bootstrap))
    return path


def check(
    broker: OdradekBroker,
    command: list[str],
    directory: Path,
    environment: dict[str, str] | None = None,
) -> None:
    """Each program finds its topic empty and its group new."""
    with Wire(broker.address) as wire:
        if requests.describe_topic(wire, "orders").error_code == 0:
            requests.delete_topic(wire, "orders")
            wire.request("delete_groups", 2, groups_names=["billing"])
        requests.create_topic(wire, "orders")
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # kafkajs writes its log to the same place.
    assert done.stdout.splitlines().count("alice book") == 1, done.stdout + done.stderr


def test_python(broker: OdradekBroker, tmp_path: Path) -> None:
    check(
        broker, [sys.executable, str(program("Python", tmp_path / "orders.py", broker))], tmp_path
    )


@pytest.mark.slow
def test_java(broker: OdradekBroker, tmp_path: Path) -> None:
    path = program("Java", tmp_path / "Orders.java", broker)
    jars = apache.class_path(apache.require_jars(), with_log=False)
    check(broker, ["java", "-cp", jars, str(path)], tmp_path)


@pytest.mark.slow
def test_node(broker: OdradekBroker, tmp_path: Path) -> None:
    node, script = foreign.require("kafkajs")
    (tmp_path / "node_modules").symlink_to(Path(script).parent / "node_modules")
    check(broker, [node, str(program("Node.js", tmp_path / "orders.js", broker))], tmp_path)


@pytest.mark.slow
def test_go(broker: OdradekBroker, tmp_path: Path) -> None:
    go = foreign.go()
    if go is None:
        judge.missing("Go runs the program around franz-go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(foreign.SOURCES / "golang" / name, tmp_path)
    path = program("Go", tmp_path / "main.go", broker)
    check(broker, [go, "run", "-mod=mod", path.name], tmp_path)


@pytest.mark.slow
def test_c(broker: OdradekBroker, tmp_path: Path) -> None:
    if not Path("/usr/include/librdkafka/rdkafka.h").exists() or shutil.which("cc") is None:
        pytest.skip("there is no C compiler with librdkafka's headers (Debian: librdkafka-dev)")
    path = program("C", tmp_path / "orders.c", broker)
    compiled = tmp_path / "orders"
    subprocess.run(
        ["cc", "-Wall", "-Werror", str(path), "-o", str(compiled), "-lrdkafka"], check=True
    )
    check(broker, [str(compiled)], tmp_path)


@pytest.mark.slow
def test_spark(broker: OdradekBroker, tmp_path: Path) -> None:
    home = spark.require()
    environment = home.environment() | {"ODRADEK_SPARK_JARS": str(home.jars)}
    check(
        broker, [sys.executable, str(program("Spark", tmp_path / "orders.py", broker))],
        tmp_path, environment,
    )  # fmt: skip
