"""Makes an executable that carries Spark for reports out of one that does not.

    python packaging/binary/with_spark.py dist/odradek --spark .cache/spark --output dist/odradek-with-spark

The directory is one that `odradek spark prepare` has filled. The first part stays as it is, so that both executables
share what they have unpacked; the second is unpacked at the first report.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import archive

CLONE = Path(__file__).resolve().parents[2]
LOCK = CLONE / "dashboard" / "spark" / "lock.json"
MOST_BYTES = 480_000_000


def take(spark: Path, root: Path) -> None:
    """The same files under other names, so that bytecode beside them stays out of ``spark``."""
    prepared = spark / "prepared.json"
    if not prepared.exists() or json.loads(prepared.read_text()) != json.loads(LOCK.read_text()):
        raise SystemExit(f"{spark} was not filled by this version's `odradek spark prepare`")
    for name in ("lib", "jars"):
        shutil.copytree(
            spark / name,
            root / name,
            ignore=shutil.ignore_patterns("__pycache__"),
            copy_function=_link,
        )
    _link(str(prepared), str(root / "prepared.json"))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("executable", type=Path)
    parser.add_argument("--spark", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=CLONE / "build" / "with-spark")
    # Nearly all of it is jars, which are compressed already.
    parser.add_argument("--level", type=int, default=3)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    root = options.work / "root"
    root.mkdir(parents=True)
    take(options.spark.resolve(), root)
    archive.compile_sources(root, root / "lib")
    archive.extend(options.executable, root, options.level, options.output)
    added = options.output.stat().st_size - options.executable.stat().st_size
    if added > MOST_BYTES:
        raise SystemExit(
            f"Spark takes {added / 1e6:.0f} MB of it, more than {MOST_BYTES / 1e6:.0f}"
        )
    sys.stdout.write(archive.told(options.output, root))
    shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
