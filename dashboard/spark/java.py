"""Which Java Spark would run on. Free of Django."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from typing import Final, NamedTuple

MIN_JAVA: Final = 17
HINT: Final = "Install Java 17 or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless)."
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')


class Java(NamedTuple):
    """``problem`` is empty when it will do."""

    path: str | None
    major: int | None
    problem: str


def find_java() -> Java:
    """JAVA_HOME first, as Spark does; then the path."""
    home = os.environ.get("JAVA_HOME")
    candidate = os.path.join(home, "bin", "java") if home else None
    path = shutil.which(candidate) if candidate else shutil.which("java")
    if path is None:
        return Java(None, None, "not installed")
    return _ask(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=4)
def _ask(path: str, changed_ns: int) -> Java:
    try:
        done = subprocess.run(  # noqa: S603 - the java of this machine
            [path, "-version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Java(path, None, f"{path} does not run: {error}")
    major = java_major(done.stderr + done.stdout)
    if major is None:
        return Java(path, None, f"{path} does not tell its version")
    if major < MIN_JAVA:
        return Java(path, major, f"version {major} at {path} is too old")
    return Java(path, major, "")


def java_major(text: str) -> int | None:
    """The major version in the output of ``java -version``; 1.8 counts as 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first
