import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.appliance.conftest import Odradek
from tests.support import apache
from tests.support.fixtures import Broker

REPOSITORY = Path(__file__).resolve().parents[3]
KEYS = r"%p:%o:%k:%v\n"


def test_keys_headers_and_nulls_come_back(on_broker: Odradek, topic: str) -> None:
    lines = b"k1=v1\n=v2\nk3=\n"
    done = on_broker(
        "produce", topic, "-K", "=", "-Z", "-H", "h=1", "-H", "n", "-p", 2, stdin=lines
    )
    assert done.ok().err == "Produced 3 records to partition 2 offsets 0-2\n"
    assert done.out == ""
    read = on_broker("consume", topic, "-e", "-q").ok()
    records = [json.loads(line) for line in read.lines]
    assert [(record["key"], record["value"]) for record in records] == [
        ("k1", "v1"),
        (None, "v2"),
        ("k3", None),
    ]
    assert records[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "n", "value": None}]


def test_what_was_written_is_told_as_json(on_broker: Odradek, topic: str) -> None:
    done = on_broker("produce", topic, "-p", 0, "--format", "json", stdin=b"a\nb").ok()
    assert done.data == [
        {"topic": topic, "partition": 0, "records": 2, "first_offset": 0, "last_offset": 1}
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(codec: str, on_broker: Odradek, topic: str) -> None:
    value = "x" * 1000
    on_broker("produce", topic, "-z", codec, stdin=f"{value}\n".encode() * 3).ok()
    assert on_broker("consume", topic, "-e", "-q", "-f", r"%v\n").lines == [value] * 3


def test_bytes_survive_the_way_through_json(
    on_broker: Odradek, topic: str, new_topic_name: Callable[[], str]
) -> None:
    payload = bytes(range(256)).replace(b"\n", b"")
    on_broker("produce", topic, "-k", "käse", "-H", "h=ü", stdin=payload).ok()
    piped = on_broker("consume", topic, "-e", "-q").ok().out.encode()
    copy = new_topic_name()
    on_broker("topic", "create", copy).ok()
    on_broker("produce", copy, "-f", "json", stdin=piped).ok()
    first, second = (
        json.loads(on_broker("consume", name, "-e", "-q").out) for name in (topic, copy)
    )
    for field in ("key", "value", "value_encoding", "headers"):
        assert first[field] == second[field]


def test_keys_find_the_partition_that_java_chooses(
    on_broker: Odradek, topic: str, broker: Broker
) -> None:
    keys = [f"key-{number}" for number in range(40)]
    lines = "".join(f"{key}:v\n" for key in keys).encode()
    on_broker("produce", topic, "-K", ":", stdin=lines).ok()
    apache.run_tool(
        "ConsoleProducer",
        [
            *("--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        ],
        stdin=lines,
    ).ok()
    placed = [
        line.split() for line in on_broker("consume", topic, "-e", "-q", "-f", r"%k %p\n").lines
    ]
    assert len(placed) == 80
    assert len({tuple(pair) for pair in placed}) == 40


def test_bad_input_stops_at_its_line(on_broker: Odradek, topic: str) -> None:
    done = on_broker("produce", topic, "-K", ":", stdin=b"a:1\nb:2\nnothing\nc:3\n")
    assert done.code == 1
    assert "record 3: no key separator" in done.err
    assert len(on_broker("consume", topic, "-e", "-q").lines) == 2


def test_a_refused_record_is_named(on_broker: Odradek, topic: str) -> None:
    on_broker("topic", "alter", topic, "--set", "max.message.bytes=2000").ok()
    lines = b"small\n" + b"x" * 5000 + b"\n"
    done = on_broker(
        "produce", topic, "-X", "linger.ms=0", "-X", "batch.num.messages=1", stdin=lines
    )
    assert done.code == 1
    assert "record 2 topic" in done.err
    assert "MESSAGE_TOO_LARGE" in done.err
    assert f"odradek topic alter {topic} --set max.message.bytes=N" in done.err


def test_null_keys_on_a_compacted_topic_are_refused(
    on_broker: Odradek, new_topic_name: Callable[[], str]
) -> None:
    name = new_topic_name()
    on_broker("topic", "create", name, "-c", "cleanup.policy=compact").ok()
    done = on_broker("produce", name, stdin=b"v\n")
    assert done.code == 1
    assert "INVALID_RECORD" in done.err


def test_a_file_and_another_delimiter(on_broker: Odradek, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"a\nb\0c")
    on_broker("produce", topic, "--file", path, "-D", r"\0", "-p", 0).ok()
    assert on_broker("consume", topic, "-e", "-q", "-f", "%v|").out == "a\nb|c|"


def test_formats_and_partitions(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, "-k", "k", "-p", 1, stdin=b"one\n").ok()
    on_broker("produce", topic, "-p", 2, stdin=b"two\n").ok()
    done = on_broker("consume", topic, "-e", "-q", "-p", 1, "-f", r"%t[%p]@%o %K:%k %S:%v\n").ok()
    assert done.out == f"{topic}[1]@0 1:k 3:one\n"


def test_filters_and_counts(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, "-K", ":", "-p", 0, stdin=b"a:x1\nb:x2\na:y3\n").ok()
    by_key = on_broker("consume", topic, "-e", "--key", "a", "-f", r"%v\n").ok()
    assert by_key.lines == ["x1", "y3"]
    assert by_key.err.startswith("2 records, ")
    assert by_key.err.endswith(", of 3 read\n")
    by_value = on_broker("consume", topic, "-e", "--grep", "x", "-n", 1, "-q", "-f", r"%v\n").ok()
    assert by_value.lines == ["x1"]
    on_broker("produce", topic, "-p", 0, stdin=b'{"n": 9007199254740993}\n{"n": 1}\n').ok()
    expression = ["--filter", "json.n > 9007199254740992"]
    by_expression = on_broker("consume", topic, "-e", *expression, "-f", r"%v\n").ok()
    assert by_expression.lines == ['{"n": 9007199254740993}']
    assert "could not be evaluated for 3 of them" in by_expression.err
    assert f"the first, {topic}-0 offset 0: " in by_expression.err
    wrong = on_broker("consume", topic, "-e", "--filter", "json.n >")
    assert wrong.code == 2
    assert "line 1, column" in wrong.err


def test_meta_only_shows_no_payload(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, stdin=b"secret\n").ok()
    done = on_broker("consume", topic, "-e", "-q", "--meta-only").ok()
    assert "secret" not in done.out
    assert json.loads(done.out)["value_size"] == 6


@pytest.fixture
def filled(on_broker: Odradek, topic: str) -> str:
    """Ten records in partition 1, the first four trimmed away; partitions 0 and 2 are empty."""
    lines = b"".join(b"%d\n" % number for number in range(10))
    # An idempotent producer takes half a second to start, which is not what is tested here.
    on_broker("produce", topic, "-p", 1, "-X", "enable.idempotence=false", stdin=lines).ok()
    on_broker("topic", "trim", topic, "-p", 1, "-o", 4, "--yes").ok()
    return topic


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (":end", "456789"),
        ("start:end", "456789"),
        ("0:2", ""),
        ("0:6", "45"),
        ("5:7", "56"),
        ("8:100", "89"),
        ("50:60", ""),
        ("-2:end", "89"),
        ("+2:end", "6789"),
        ("end:end", ""),
        ("@-1h:end", "456789"),
        ("@-2h:-1h", ""),
        ("@:end", "456789"),
    ],
)
def test_bounded_reads_end(spec: str, expected: str, filled: str, on_broker: Odradek) -> None:
    """Case C149: ends that are beyond the log, below it, or in an empty partition."""
    assert on_broker("consume", filled, "-o", spec, "-q", "-f", "%v").ok().out == expected


@pytest.mark.parametrize(
    ("spec", "expected"), [("start", "456789"), ("-1", "9"), ("7", "789"), ("end", "")]
)
def test_exit_at_end_freezes_the_ends(
    spec: str, expected: str, filled: str, on_broker: Odradek
) -> None:
    assert on_broker("consume", filled, "-e", "-o", spec, "-q", "-f", "%v").ok().out == expected


def test_an_offset_that_is_gone_is_remarked_upon(filled: str, on_broker: Odradek) -> None:
    done = on_broker("consume", filled, "-o", "1", "-p", 1, "-e", "-f", "%v").ok()
    assert "offset 1 is gone, the log starts at 4" in done.err


def test_a_missing_partition_fails_and_the_others_are_read(filled: str, on_broker: Odradek) -> None:
    done = on_broker("consume", filled, "-p", "1,7", "-e", "-q", "-f", "%v")
    assert done.code == 1
    assert done.out == "456789"
    assert "partition 7" in done.err


@pytest.mark.slow
def test_markers_count_as_progress(
    shared_apache: apache.ApacheKafka, odradek: Odradek, new_topic_name: Callable[[], str]
) -> None:
    """Case C149: the last offset of the log is a transaction marker, which no reader ever sees."""
    name = new_topic_name()
    bootstrap = shared_apache.bootstrap
    odradek("-b", bootstrap, "topic", "create", name, "-p", 1).ok()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for value, end in (("kept", producer.commit_transaction), ("lost", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        end(30)
    read = ["consume", name, "-q", "-f", "%v,", "-b", bootstrap]
    assert odradek(*read, "-o", ":end").ok().out == "kept,lost,"
    assert odradek(*read, "-o", ":end", "--read-committed").ok().out == "kept,"
    assert odradek(*read, "-o", "0:2").ok().out == "kept,"


def test_tail_shows_what_arrives_and_ends_by_interrupt(
    broker: Broker, topic: str, on_broker: Odradek
) -> None:
    on_broker("produce", topic, "-p", 0, stdin=b"before\n").ok()
    tail = subprocess.Popen(
        [sys.executable, "-m", "appliance", "-b", broker.bootstrap, "tail", topic, "-f", r"%v\n"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        # Whoever runs the tests in the background ignores the interrupt, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert tail.stdout is not None
    with tail:
        # Whenever the reader is there: it shows a record that was sent after its start.
        os.set_blocking(tail.stdout.fileno(), False)
        seen = b""
        for number in range(300):
            on_broker("produce", topic, "-p", 0, stdin=b"%d\n" % number).ok()
            seen += tail.stdout.read() or b""
            if seen:
                break
        tail.send_signal(signal.SIGINT)
        tail.wait(30)
        assert tail.stderr is not None
        error = tail.stderr.read()
    assert tail.returncode == 130
    assert b"before" not in seen
    assert seen.splitlines()[0].isdigit()
    assert b"record" in error


def test_a_count_ends_an_endless_read(filled: str, on_broker: Odradek) -> None:
    assert on_broker("consume", filled, "-n", 2, "-q", "-f", "%v").ok().out == "45"
    assert on_broker("consume", filled, "-n", 0, "-q").ok().out == ""


def test_several_topics_at_once(
    filled: str, topic: str, on_broker: Odradek, new_topic_name: Callable[[], str]
) -> None:
    other = new_topic_name()
    on_broker("topic", "create", other).ok()
    on_broker("produce", other, stdin=b"z\n").ok()
    done = on_broker("consume", filled, other, "-e", "-q", "-f", "%v").ok()
    assert sorted(done.out) == sorted("456789z")
