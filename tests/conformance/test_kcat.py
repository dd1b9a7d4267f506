"""kcat: the command-line client that people have at hand."""

import subprocess
from collections.abc import Sequence

import pytest

from tests.support import judge, requests
from tests.support.fixtures import Broker
from tests.support.requests import create_topic
from tests.support.wire import Wire


def kcat(broker: Broker, args: Sequence[object], stdin: bytes = b"") -> str:
    program = judge.program("kcat", "a package of that name in Debian")
    done = subprocess.run(
        [program, "-b", broker.bootstrap, "-m", "20", *map(str, args)],
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_list_shows_brokers_and_topics(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire, partitions=3)
    shown = kcat(broker, ["-L"])
    assert f"at {broker.bootstrap} (controller)" in shown
    assert f'topic "{name}" with 3 partitions:' in shown
    assert "leader" in kcat(broker, ["-L", "-t", name])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(broker: Broker, wire: Wire, codec: str) -> None:
    name = create_topic(wire)
    lines = b"".join(b"key%d:value %d\n" % (index, index) for index in range(100))
    kcat(broker, ["-P", "-t", name, "-p", "0", "-K", ":", "-z", codec], lines)
    shown = kcat(broker, ["-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n"])
    assert shown.splitlines() == [f"{index} key{index} value {index}" for index in range(100)]


def test_headers_nulls_and_partitions(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    kcat(broker, ["-P", "-t", name, "-p", 1, "-H", "a=1", "-H", "b=2", "-K", ":", "-Z"], b"k:\n")
    shown = kcat(broker, ["-C", "-t", name, "-p", 1, "-o", "0", "-e", "-q", "-f", "%h %k %S %p\n"])
    assert shown == "a=1,b=2 k -1 1\n"


def test_offsets_from_the_end_and_by_time(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire)
    first = requests.now_ms() - 1000  # recent, or retention removes the records meanwhile
    for index in range(10):
        requests.produce(
            wire, name, requests.record_batches.batch([b"%d" % index], timestamp=first + index)
        )
    last = kcat(broker, ["-C", "-t", name, "-p", 0, "-o", "-3", "-e", "-q"])
    assert last.split() == ["7", "8", "9"]
    since = kcat(broker, ["-C", "-t", name, "-p", 0, "-o", f"s@{first + 6}", "-e", "-q"])
    assert since.split() == ["6", "7", "8", "9"]
    assert kcat(broker, ["-Q", "-t", f"{name}:0:{first + 4}"]).strip().endswith("offset 4")


def test_an_idempotent_producer(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire)
    requests.init_producer(wire)
    kcat(broker, ["-P", "-t", name, "-X", "enable.idempotence=true"], b"a\nb\nc\n")
    assert [record.value for record in requests.read_all(wire, name)] == [b"a", b"b", b"c"]


def test_a_topic_is_created_by_writing_to_it(broker: Broker, wire: Wire) -> None:
    name = requests.new_topic_name()
    kcat(broker, ["-P", "-t", name], b"first\n")
    requests.wait_for_leaders(wire, name, 1)
    assert [record.value for record in requests.read_all(wire, name)] == [b"first"]
