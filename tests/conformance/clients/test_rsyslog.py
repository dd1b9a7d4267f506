"""rsyslog with omkafka, as Debian ships them: a log shipper that writes to a topic."""

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import judge, processes, requests
from tests.support import record_batches as rb
from tests.support.fixtures import Broker
from tests.support.requests import create_topic
from tests.support.wire import Wire

MODULES = ("/usr/lib/x86_64-linux-gnu/rsyslog", "/usr/lib/aarch64-linux-gnu/rsyslog")
SETTINGS = """
module(load="imptcp")
module(load="omkafka")
input(type="imptcp" port="{port}" address="127.0.0.1")
template(name="line" type="string" string="%msg%")
action(
    type="omkafka" broker=["{bootstrap}"] topic="{topic}" key="shipped" template="line"
    partitions.auto="on" confParam=[{parameters}] errorFile="{directory}/errors"
    resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{directory}/failed"
    queue.type="LinkedList" action.resumeRetryCount="-1" action.resumeInterval="1"
)
"""


def require_rsyslog() -> str:
    program = judge.program("rsyslogd", "the package rsyslog-kafka of Debian")
    if not any((Path(directory) / "omkafka.so").exists() for directory in MODULES):
        judge.missing("rsyslog has no omkafka (the package rsyslog-kafka of Debian)")
    return program


@contextmanager
def shipper(broker: Broker, topic: str, directory: Path, *parameters: str) -> Iterator[int]:
    """rsyslogd, which sends every line that comes to the port to the topic. At the end it has
    sent what it took."""
    program = require_rsyslog()
    port = judge.free_port()
    settings = directory / "rsyslog.conf"
    listed = ", ".join(f'"{parameter}"' for parameter in ("linger.ms=5", *parameters))
    settings.write_text(
        SETTINGS.format(
            port=port,
            bootstrap=broker.bootstrap,
            topic=topic,
            parameters=listed,
            directory=directory,
        )
    )
    process = subprocess.Popen(
        [program, "-n", "-f", str(settings), "-i", str(directory / "pid")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        processes.wait_until(lambda: is_open(port) or process.poll() is not None, 20, "rsyslogd")
        assert process.poll() is None
        yield port
    finally:
        process.terminate()
        process.wait(60)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def log(port: int, lines: list[str]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for line in lines:
            connection.sendall(f"<13>Nov 28 03:00:00 host tag: {line}\n".encode())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_lines_are_shipped(broker: Broker, wire: Wire, tmp_path: Path, codec: str) -> None:
    topic = create_topic(wire)
    lines = [f"line {index}" for index in range(500)]
    with shipper(broker, topic, tmp_path, f"compression.codec={codec}") as port:
        log(port, lines)
        processes.wait_until(lambda: requests.end_offset(wire, topic) == 500, 30, "500 lines")
    found = requests.read_all(wire, topic)
    assert [record.value.strip() for record in found] == [line.encode() for line in lines]
    assert {record.key for record in found} == {b"shipped"}
    stored = list(rb.batches(requests.fetch(wire, topic, 0).records))
    assert codec in {rb.CODEC_NAMES[batch.codec] for batch in stored}
    assert not (tmp_path / "errors").exists()


def test_a_shipper_waits_for_its_broker(
    start_odradek: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = start_odradek()
    with Wire(broker.address) as wire:
        topic = create_topic(wire)
    lines = [f"line {index}" for index in range(300)]
    with shipper(broker, topic, tmp_path) as port:
        log(port, lines[:100])
        with Wire(broker.address) as wire:
            processes.wait_until(lambda: requests.end_offset(wire, topic) == 100, 30, "the lines")
        broker.kill9()
        log(port, lines[100:200])
        broker.start()
        log(port, lines[200:])
        with Wire(broker.address) as wire:
            processes.wait_until(
                lambda: (
                    {record.value.strip() for record in requests.read_all(wire, topic)}
                    == {line.encode() for line in lines}
                ),
                60,
                "all lines",
                every=0.2,
            )
