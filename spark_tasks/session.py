"""The Spark session of a report, small enough for a machine that has other work to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

MAX_HEAP_BYTES: Final = 1024**3
SHUFFLE_PARTITIONS: Final = 8


def default_master() -> str:
    """One core stays for everything else."""
    return f"local[{max(1, len(os.sched_getaffinity(0)) - 1)}]"


def heap_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(MAX_HEAP_BYTES, memory // 4)


def open_session(
    master: str, settings: Mapping[str, str], jars: Sequence[str], scratch: str
) -> Any:
    """``settings`` win over ours; ``scratch`` is where Spark puts what does not fit in memory."""
    from pyspark.sql import SparkSession

    chosen: dict[str, str] = {
        "spark.app.name": "odradek-report",
        "spark.driver.memory": f"{heap_bytes() // 1024**2}m",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:+UseSerialGC",
        "spark.jars": ",".join(jars),
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not master or master.startswith("local"):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master or default_master())
    for name, value in (chosen | dict(settings)).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
