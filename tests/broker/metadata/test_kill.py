"""A real process on a real disk, killed again and again: every answer it gave still holds."""

import subprocess
import sys
from pathlib import Path

from broker.metadata.files import DiskDirectory
from tests.support.metadata import Cluster

REPOSITORY = Path(__file__).parents[3]


def test_kill_9_loses_no_answered_change(tmp_path: Path) -> None:
    known: set[str] = set()
    directory = str(tmp_path / "metadata")
    for run in range(6):
        lines = run_and_kill(directory, after_lines=40 + 37 * run)
        for line in lines:
            (known.add if line[0] == "+" else known.discard)(line[1:])
        cluster = Cluster(DiskDirectory(directory)).start()
        found = set(cluster.image.topics)
        # At most the one request that was under way is not told of.
        assert len(found ^ known) <= 1
        known = found
        cluster.stop()


def run_and_kill(directory: str, after_lines: int) -> list[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.broker.metadata.killed_writer", directory],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    with process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(after_lines):
            lines.append(process.stdout.readline().rstrip("\n"))
        process.kill()
        # What it said before it died counts too, unless the line itself is cut off.
        rest = process.stdout.read()
        lines += rest.split("\n")[:-1]
    return lines
