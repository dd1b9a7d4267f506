"""Spark as the tests see it: prepared once into .cache/spark, and one session for a whole run.

`python -m tests.support.spark` prepares it (as CI does); SPARK_HOME_FOR_TESTS names another place.
"""

import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboard.spark.home import SparkHome
from spark_tasks import registry
from spark_tasks.job import Format, Job, PartitionRange
from tests.support import judge
from tests.support.clients import ConfluentKafka, Message

REPOSITORY = Path(__file__).resolve().parents[2]


def home() -> SparkHome:
    return SparkHome(
        Path(os.environ.get("SPARK_HOME_FOR_TESTS") or REPOSITORY / ".cache" / "spark")
    )


def require() -> SparkHome:
    """Where Spark is, or the end of this test with a reason."""
    found = home()
    if (missing := found.missing()) is not None:
        judge.missing(f"{missing.what} (`python -m tests.support.spark` prepares it)")
    return found


class NoTeller:
    def tell(self, **document: Any) -> None:
        pass


class SparkInThisProcess:
    """Runs reports as `spark_tasks.run` does, in one session: starting one takes many seconds."""

    def __init__(self, home: SparkHome, scratch: Path, master: str = "local[2]") -> None:
        sys.path.insert(0, str(home.lib))
        os.environ.update(home.environment())
        from spark_tasks.session import open_session

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.session = open_session(
                master, {"spark.sql.shuffle.partitions": "2"}, home.jar_paths(), str(scratch)
            )

    def run(
        self,
        report: str,
        parameters: Mapping[str, str],
        directory: Path,
        *,
        bootstrap: str = "",
        ranges: tuple[PartitionRange, ...] = (),
        format_: Format | None = None,
        **more: Any,
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """(rows as pages show them, what is said about the result)."""
        import json

        from spark_tasks.run import compute

        directory.mkdir(parents=True)
        job = Job(
            report,
            str(directory),
            dict(parameters),
            bootstrap,
            {},
            ranges,
            format_ or Format(),
            **more,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = compute(job, registry.shipped()[report], self.session, NoTeller())  # type: ignore[arg-type]
        gc.collect()  # here, not amid another test: see close()
        document = json.loads((directory / "rows.json").read_text())
        names = [column["name"] for column in document["columns"]]
        return [dict(zip(names, row, strict=True)) for row in document["rows"]], said

    def close(self) -> None:
        """Ends Spark, and leaves nothing behind that speaks to it once more when it is collected.

        Python's handles of Java's objects send a message when they are collected, and say with a
        traceback when that fails. Both would happen amid any test that runs later in this process.
        """
        from py4j.finalizer import ThreadSafeFinalizer
        from pyspark import SparkContext

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gateway = self.session.sparkContext._gateway
            gc.collect()
            self.session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
            del self.session, gateway
            gc.collect()
            ThreadSafeFinalizer.clear_finalizers(clear_all=True)


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """All that is in it, by partition, as a client sees it that is not Java."""
    client = ConfluentKafka()
    found = []
    for partition in range(partitions):
        start, end = client.watermarks(bootstrap, topic, partition)
        found += client.read(bootstrap, topic, end - start, partition=partition, start=start)
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkInThisProcess]:
    """One Spark for all tests of a run that want one."""
    with tempfile.TemporaryDirectory(prefix="odradek-spark-") as scratch:
        kept = dict(os.environ)
        found = SparkInThisProcess(require(), Path(scratch))
        try:
            yield found
        finally:
            found.close()
            os.environ.clear()
            os.environ.update(kept)


def main() -> None:
    from dashboard.spark.prepare import prepare

    last = ""

    def show(name: str, have: int, size: int) -> None:
        nonlocal last
        if name != last or have == size:
            print(f"{name} {have}/{size}", flush=True)
        last = name

    prepare(home(), None, show)


if __name__ == "__main__":
    main()
