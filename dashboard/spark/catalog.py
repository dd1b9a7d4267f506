"""All reports that can be set up: shipped ones, and the user's, which are described elsewhere.

User files are never imported here: ``python -m spark_tasks describe`` does that, in a process that
knows none of our secrets, and its answer is kept until a file changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from dashboard.spark import results
from spark_tasks import registry
from spark_tasks.registry import Refused
from spark_tasks.report import Report, described

DESCRIBE_S: Final = 60
MAX_ANSWER: Final = 4 * 1024 * 1024

_lock = threading.Lock()
_known: tuple[Any, dict[str, Report], list[Refused]] | None = None


def reports() -> dict[str, Report]:
    return {**registry.shipped(), **user_reports()[0]}


def find(name: str) -> Report | None:
    shipped = registry.shipped().get(name)
    return shipped if shipped is not None else user_reports()[0].get(name)


def user_reports() -> tuple[dict[str, Report], list[Refused]]:
    """(by name, files that were not taken)."""
    global _known
    directory = results.user_reports()
    taken, refused = registry.user_files(directory)
    if not taken:
        return {}, refused
    looks = (tuple(_look(path) for path in taken), tuple(refused))
    with _lock:
        if _known is None or _known[0] != looks:
            _known = (looks, *_describe(directory, taken, refused))
        return _known[1], _known[2]


def _look(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_size


def _describe(
    directory: Path, taken: list[Path], refused: list[Refused]
) -> tuple[dict[str, Report], list[Refused]]:
    try:
        with tempfile.TemporaryFile() as output:
            subprocess.run(  # noqa: S603 - ours
                [sys.executable, "-P", "-m", "spark_tasks", "describe", str(directory)],
                cwd="/",
                env=results.home().environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=DESCRIBE_S,
                check=True,
                start_new_session=True,
            )
            output.seek(0)
            answer = json.loads(output.read(MAX_ANSWER))
        found = [described(each) for each in answer["reports"]]
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        reason = f"could not be looked at: {error}"
        return {}, [*refused, *(Refused(path.name, reason) for path in taken)]
    return {each.name: each for each in found}, [
        Refused(str(each["file"]), str(each["reason"])) for each in answer["refused"]
    ]
