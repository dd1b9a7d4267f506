"""Jobs that copy a topic exactly once, by each client library, and how often tests kill something amid one.

All do what ``copy_job.py`` does, with the same arguments.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from tests.support import apache, foreign, judge

#: In each test, of the job or a broker; what there is to copy is enough for that. 100 for the long run.
KILLS = int(os.environ.get("COPY_JOB_KILLS", "12"))
#: Values in each partition of the source.
COUNT = 125 * KILLS
JAVA_COPY_JOB = apache.POM.with_name("CopyJob.java")


def by_librdkafka() -> list[str]:
    return [sys.executable, "-m", "tests.support.copy_job"]


def by_aiokafka() -> list[str]:
    return [sys.executable, "-m", "tests.support.copy_job_aiokafka"]


def by_java() -> list[str]:
    """By ``transaction.version`` 2; the others still speak the classic protocol."""
    judge.program("javac", "a Java development kit compiles the Java copy job")
    libs = apache.require_jars()
    options = ["-Xmx128M", *apache.SMALL_JVM, "-cp", apache.class_path(libs, with_log=False)]
    return ["java", *options, str(JAVA_COPY_JOB)]


def by_franz_go() -> list[str]:
    return foreign.require("copy-job")


PROGRAMS: list[Callable[[], list[str]]] = [by_librdkafka, by_aiokafka, by_java, by_franz_go]


def check(found: Sequence[bytes | None], expected: Sequence[bytes], where: str) -> None:
    """All that was to be copied, once, in order: says how it differs, not what all of it is."""
    if list(found) == list(expected):
        return
    counts = Counter(found)
    lost = [value for value in expected if value not in counts]
    doubled = [value for value, count in counts.items() if count > 1]
    pairs = zip(found, expected, strict=False)
    first = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    raise AssertionError(
        f"{where}: {len(found)} values of {len(expected)}, the first that differs is number {first}; "
        f"{len(lost)} are lost: {lost[:5]}, {len(doubled)} are there more than once: {doubled[:5]}"
    )
