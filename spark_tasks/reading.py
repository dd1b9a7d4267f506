"""For PySpark programs of your own: topics as DataFrames, batch and streaming, and results of runs.

    eval "$(odradek spark env)"; python my_program.py

    from spark_tasks.reading import read, read_result, read_stream, start_session
    spark = start_session()
    orders = read(spark, "orders", since="-1h", schema="customer string, price double")
    orders.where("is_parsed").groupBy("data.customer").sum("data.price").show()

Records come as ``topic, partition, offset, timestamp, key, value``, with ``data``, ``is_parsed`` and
``is_tombstone`` where a schema is given. A stream keeps its place in its checkpoint, not in a
consumer group: what ``starting`` says counts only until there is one, and moving a group does
nothing. To start anew, delete the checkpoint.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from spark_tasks import formats
from spark_tasks.job import Format
from spark_tasks.session import open_session
from spark_tasks.source import COLUMNS, GROUP_PREFIX

BOOTSTRAP_VARIABLE: Final = "ODRADEK_BOOTSTRAP"
JARS_VARIABLE: Final = "ODRADEK_SPARK_JARS"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
MAX_OFFSETS_PER_TRIGGER: Final = 1_000_000
"""A first batch would otherwise be the whole topic."""
METADATA: Final = "_spark_metadata"
_AGO: Final = re.compile(r"-(\d+)(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def start_session(master: str = "", settings: Mapping[str, str] | None = None) -> Any:
    """A session that has the Kafka connector; ``odradek spark env`` says where it is."""
    directory = os.environ.get(JARS_VARIABLE, "")
    jars = sorted(str(path) for path in Path(directory).glob("*.jar")) if directory else []
    scratch = tempfile.mkdtemp(prefix="odradek-spark-")
    return open_session(master, settings or {}, jars, scratch)


def read(
    spark: Any,
    topic: str,
    *,
    bootstrap: str = "",
    since: str = "",
    until: str = "",
    schema: str = "",
    properties: Mapping[str, str] | None = None,
) -> Any:
    """Records of a topic that are there now. Times: ``-1h``, or RFC 3339; empty: all.

    ``schema``: of JSON values, such as ``customer string, price double``.
    """
    options = _options(topic, bootstrap, properties)
    if since:
        # Where nothing is as young as that, there is nothing to read, rather than an error.
        options |= {
            "startingTimestamp": str(milliseconds(since)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if until:
        options["endingTimestamp"] = str(milliseconds(until))
    return _parsed(spark.read.format("kafka").options(**options).load(), schema)


def read_stream(
    spark: Any,
    topic: str,
    *,
    bootstrap: str = "",
    starting: str = "earliest",
    schema: str = "",
    max_offsets_per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
    properties: Mapping[str, str] | None = None,
) -> Any:
    """A topic as a stream. Write it with a ``checkpointLocation``; for runs that end when they have
    read what is there, with ``trigger(availableNow=True)``.

    Records that are deleted before they are read do not fail the query: Spark logs what it skips.
    """
    options = _options(topic, bootstrap, properties) | {
        "startingOffsets": starting,
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
    }
    return _parsed(spark.readStream.format("kafka").options(**options).load(), schema)


def read_result(spark: Any, directory: str | Path) -> Any:
    """What a stream or a report's run wrote as Parquet: only what was committed."""
    files = result_files(directory)
    if not files:
        raise FileNotFoundError(f"nothing is committed in {directory}")
    return spark.read.parquet(*files)


def result_files(directory: str | Path) -> list[str]:
    """The Parquet files that count, for any reader.

    A stream that was killed leaves files of a batch that it writes again when it goes on: those
    that count are listed in its ``_spark_metadata``. Without such a list all files count.
    """
    root = Path(directory)
    log = root / METADATA
    if not log.is_dir():
        return sorted(str(path) for path in root.rglob("*.parquet") if METADATA not in path.parts)
    batches = {int(path.name): path for path in log.iterdir() if path.name.isdecimal()}
    compacts = {
        int(path.name.removesuffix(".compact")): path
        for path in log.iterdir()
        if path.name.endswith(".compact")
    }
    newest = max(compacts, default=-1)
    order = [compacts[newest]] if compacts else []
    order += [batches[number] for number in sorted(batches) if number > newest]
    found: dict[str, None] = {}
    for path in order:
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            name = _local(entry["path"])
            if entry.get("action", "add") == "delete":
                found.pop(name, None)
            else:
                found[name] = None
    return list(found)


def milliseconds(text: str) -> int:
    """``-15m``, ``-1h``, ``-7d``, or RFC 3339 (UTC unless it says otherwise)."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)  # noqa: TID251 - a user's clock
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def _options(topic: str, bootstrap: str, properties: Mapping[str, str] | None) -> dict[str, str]:
    found = {f"kafka.{name}": value for name, value in (properties or {}).items()}
    address = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    return found | {
        "kafka.bootstrap.servers": address,
        "subscribe": topic,
        "failOnDataLoss": "false",
        "groupIdPrefix": GROUP_PREFIX,
    }


def _parsed(records: Any, schema: str) -> Any:
    chosen = records.select(*COLUMNS)
    if not schema:
        return chosen
    return formats.parse(chosen, Format("json", schema), None)[0]


def _local(url: str) -> str:
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in ("file", "") else url
