"""What a topic's page gives to copy is run as it stands."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboard.snippets import snippets_of
from tests.support import processes, requests
from tests.support import spark as spark_for_tests
from tests.support.odradek import OdradekBroker
from tests.support.wire import Wire


def snippet(name: str, topic: str) -> str:
    (found,) = [one.text for one in snippets_of(None, topic).snippets if one.name == name]
    return found


@pytest.fixture
def topic(shared_odradek: OdradekBroker, settings: Any) -> str:
    settings.ODRADEK_CLUSTER = shared_odradek.bootstrap
    with Wire(shared_odradek.address) as wire:
        return requests.create_topic(wire)


def test_the_python_snippet_writes_a_record_and_reads_it(topic: str, tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", snippet("Python (confluent-kafka)", topic)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        processes.wait_until(lambda: b"b'value'" in output.read_bytes(), 60, "the record")
    finally:
        process.kill()
        process.wait()
    assert output.read_text() == "0 0 b'key' b'value'\n"


@pytest.mark.slow
def test_spark_s_snippet_killed_amid_its_stream_and_run_again_has_each_record_once(
    topic: str, shared_odradek: OdradekBroker, tmp_path: Path
) -> None:
    """``kill -9`` of all of it as soon as it has begun to write."""
    home = spark_for_tests.require()
    count = 20_000
    with Wire(shared_odradek.address) as wire:
        for first in range(0, count, 2_000):
            values: list[bytes | None] = [b"%d" % n for n in range(first, first + 2_000)]
            requests.produce_values(wire, topic, values)
    program = tmp_path / "program.py"
    # Small batches, so that there is something to be in the middle of.
    text = snippet("Spark (Odradek's helper)", topic)
    stream = f'bootstrap="{shared_odradek.bootstrap}")\n    .writeStream'
    assert stream in text
    program.write_text(
        text.replace(stream, stream.replace('")', '", max_offsets_per_trigger=1_000)'))
        + f"""
found = [row.offset for row in read_result(spark, "{topic}.out").select("offset").collect()]
print(len(found), "records, each once:", sorted(found) == list(range({count})))
"""
    )
    environment = {**home.environment(), "ODRADEK_SPARK_JARS": str(home.jars)}
    output, out = tmp_path / "output.txt", tmp_path / f"{topic}.out"

    def start() -> subprocess.Popen[bytes]:
        with output.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, str(program)], cwd=tmp_path, env=environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    process = start()
    try:
        processes.wait_until(
            lambda: process.poll() is not None or len(list(out.glob("*.parquet"))) > 2,
            240,
            "some batches",
        )
        assert process.poll() is None, output.read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    again = start()
    try:
        assert again.wait(300) == 0, output.read_text()
    finally:
        processes.end(again, signal.SIGKILL, 30)
    assert f"{count} records, each once: True" in output.read_text()
