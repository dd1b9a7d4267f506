"""``python -m broker.compiled.build``: compile the hot path with mypyc, see ``broker.compiled``.

Needs a C compiler and Python's headers; takes about a minute, and nothing when the build is
current. ``--if-possible`` ends well, with the reason in one line, where it cannot be done: the
broker runs without it, only slower.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from broker.compiled import (
    BUILD_DIRECTORY,
    MANIFEST,
    Manifest,
    is_current,
    source_digest,
    source_stamp,
)

#: What a produced or fetched batch passes through, by package.
HOT_MODULES: Final = {
    "model": ("file_region", "ids"),
    "records": ("header", "produce_rules", "validation"),
    "storage": (
        "append_info",
        "cold",
        "context",
        "filesystem",
        "flush",
        "leader_epochs",
        "log",
        "log_reader",
        "offset_index",
        "producer_state",
        "segment",
        "segments",
        "sparse_index",
        "time_index",
    ),
    "storage/cleaning": ("key_table", "record_scan"),
    "protocol": ("framing", "request", "varint"),
    "protocol/hot": ("fetch", "layout", "produce", "replica_fetch"),
    "replication": (
        "background",
        "delayed",
        "fetch_session",
        "followed_partition",
        "follower",
        "follower_reader",
        "follower_state",
        "isr",
        "leader",
        "lease",
        "partition",
        "replica",
        "replica_fetch",
        "replica_log",
        "replica_manager",
        "replica_session",
        "replicated_partition",
        "throttle",
        "traffic",
    ),
    "server": ("connection", "context", "dispatcher", "send_queue"),
    "server/cluster": ("peer_socket", "replica_fetcher"),
    "server/handlers": ("fetch", "produce", "replica_fetch"),
}
_BROKER: Final = Path(__file__).resolve().parents[1]


class CannotCompile(Exception):
    """Something that compiling needs is missing, or it failed; says what."""


def hot_sources() -> list[str]:
    """Paths of the modules, relative to the directory that holds ``broker``."""
    return [
        f"broker/{package}/{module}.py"
        for package, modules in HOT_MODULES.items()
        for module in modules
    ]


def main(arguments: Sequence[str]) -> int:
    """Build if needed; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m broker.compiled.build", description=__doc__)
    parser.add_argument("--if-possible", action="store_true", help="do without where it cannot be")
    options = parser.parse_args(arguments)
    if is_current():
        return 0
    try:
        _check_tools()
        _say("compiling the hot path, about a minute, once")
        _build()
    except CannotCompile as error:
        _say(f"the hot path stays interpreted: {error}")
        return 0 if options.if_possible else 1
    _say("compiled")
    return 0


def _check_tools() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None:
        raise CannotCompile("there is no C compiler")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise CannotCompile("Python's headers (Python.h) are not installed")
    try:
        importlib.import_module("mypyc.build")
    except ImportError as error:
        raise CannotCompile(f"mypy is not installed ({error})") from error


def _build() -> None:
    digest, stamp = source_digest(), source_stamp()
    BUILD_DIRECTORY.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-") as work:
        # A copy, away from all packages: mypy would take those beside an installed broker for
        # sources too, and an edit meanwhile shall not mix.
        sources = Path(work, "sources")
        shutil.copytree(
            _BROKER, sources / "broker", ignore=shutil.ignore_patterns("__pycache__", "build")
        )
        log = Path(work, "log.txt")
        with log.open("wb") as output:
            # A process of its own: mypyc writes to the working directory and ends with exit().
            status = subprocess.run(  # noqa: S603
                [sys.executable, "-P", "-c", "from broker.compiled.build import run; run()", work],
                cwd=sources,
                env={**os.environ, "MYPY_CACHE_DIR": os.path.join(work, "cache")},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if status:
            told = [
                line for line in log.read_text(errors="replace").splitlines() if "error" in line
            ]
            raise CannotCompile("; ".join(told[:3]) or f"mypyc ended with {status}")
        made = Path(work, "lib")
        modules = dict(_modules_in(made))
        shared = next(name for name in modules if name.endswith("__mypyc"))
        manifest = Manifest(digest, stamp, shared, modules)
        Path(made, MANIFEST).write_text(json.dumps(manifest._asdict(), indent=1), encoding="utf-8")
        _replace(BUILD_DIRECTORY, made)


def _replace(directory: Path, made: Path) -> None:
    """Put what was made in its place: whole, wherever this is cut off."""
    new = Path(tempfile.mkdtemp(prefix="new-", dir=directory.parent))
    try:
        shutil.copytree(made, new, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(FileExistsError):  # another build was quicker
            new.rename(directory)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _modules_in(directory: Path) -> Iterator[tuple[str, str]]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for path in sorted(directory.rglob(f"*{suffix}")):
        file = str(path.relative_to(directory))
        yield file.removesuffix(suffix).replace("/", "."), file


def run() -> None:
    """In the child process: compile into ``lib`` of the directory named by the first argument."""
    from mypyc.build import mypycify
    from setuptools import setup

    work = sys.argv[1]
    setup(
        name="hot-path",
        py_modules=[],
        ext_modules=mypycify(
            # The project's own settings for mypy are not here: some libraries have no types.
            ["--disable-error-code=import-untyped", *hot_sources()],
            opt_level="2",
            debug_level="0",
            target_dir=os.path.join(work, "c"),
        ),
        script_args=[
            "build_ext", "--build-lib", os.path.join(work, "lib"),
            "--build-temp", os.path.join(work, "objects"),
        ],
    )  # fmt: skip


def _say(text: str) -> None:
    sys.stderr.write(f"odradek: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
