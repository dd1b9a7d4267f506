"""Where Spark is kept, and what is missing before a report can run. Free of Django.

``odradek spark prepare`` fills ``data/spark`` (or the setting ``spark_home``): ``lib`` with PySpark,
which carries Spark itself, and ``jars`` with its Kafka connector; ``prepared.json`` is written last.
A single executable may carry the same along (``carried``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from dashboard.spark import carried
from dashboard.spark.java import HINT, find_java

DIRECTORY: Final = "spark"
PREPARED: Final = "prepared.json"
LOCK_FILE: Final = Path(__file__).with_name("lock.json")
_SECRETS: Final = ("ODRADEK_", "DATABASE_URL", "CELERY_")
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


@cache
def lock() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LOCK_FILE.read_text())
    return found


@dataclass(frozen=True, slots=True)
class Missing:
    """Why no report can run: ``what``, and what to do."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what}. {self.hint}"


@dataclass(frozen=True, slots=True)
class SparkHome:
    directory: Path
    is_carried: bool = False
    """Whether the single executable has it, perhaps not unpacked yet."""

    @property
    def lib(self) -> Path:
        return self.directory / "lib"

    @property
    def jars(self) -> Path:
        return self.directory / "jars"

    @property
    def is_prepared(self) -> bool:
        try:
            told = json.loads((self.directory / PREPARED).read_text())
        except (OSError, ValueError):
            return False
        return bool(told == lock())

    def missing(self) -> Missing | None:
        """The first thing that is not there; None when reports can run."""
        java = find_java()
        if java.problem:
            return Missing(f"Spark reports need Java 17 or newer: {java.problem}", HINT)
        if not self.is_prepared and not self.is_carried:
            return Missing(
                f"Spark {lock()['spark']} is not prepared",
                "`odradek spark prepare` downloads it (460 MB) into the data directory.",
            )
        return None

    def jar_paths(self) -> list[str]:
        return [str(self.jars / Path(each["path"]).name) for each in lock()["jars"]]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of a report's process: none of our secrets, nothing of another Spark."""
        base = os.environ if base is None else base
        kept = {
            name: value
            for name, value in base.items()
            if not name.startswith((*_SECRETS, "SPARK_", "PYSPARK_", "DJANGO_"))
        }
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.lib), str(_REPOSITORY)]),
            "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(self.lib / "pyspark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def home_of(data_directory: Path, chosen: Path | None) -> SparkHome:
    """The one that was chosen, else what was prepared in the data directory, else what the executable carries."""
    home = SparkHome((chosen or data_directory / DIRECTORY).absolute())
    if chosen is None and (place := carried.directory()) is not None and not home.is_prepared:
        return SparkHome(place, is_carried=True)
    return home
