"""``python -m spark_tasks run``, and ``describe DIRECTORY`` for the user's own reports."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from spark_tasks import parenthood
from spark_tasks.job import MAX_LINE_BYTES, job_of
from spark_tasks.progress import Teller


def main(arguments: list[str]) -> int:
    # Python and Java both take local times from here; results are in UTC.
    os.environ["TZ"] = "UTC"
    time.tzset()
    if arguments == ["run"]:
        return _run()
    if len(arguments) == 2 and arguments[0] == "describe":
        return _describe(Path(arguments[1]))
    sys.stderr.write("usage: python -m spark_tasks run | describe DIRECTORY\n")
    return 2


def _run() -> int:
    parenthood.step_back()
    # What Spark and reports print goes to the log; only our lines go to whoever asked.
    teller = Teller(os.dup(1))
    os.dup2(2, 1)
    job = job_of(json.loads(_first_line(0)))
    parenthood.end_with_asker(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    from spark_tasks.run import run

    return 0 if run(job, teller) else 1


def _first_line(descriptor: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
        # Byte by byte past the line would eat what tells that the asker is gone.
        data = os.read(descriptor, 65536)
        if not data:
            break
        line += data
    return bytes(line)


def _describe(directory: Path) -> int:
    from spark_tasks import registry

    found, refused = registry.load_user(directory)
    document = {
        "reports": [report.describe() for report in found.values()],
        "refused": [{"file": each.file, "reason": each.reason} for each in refused],
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
