"""Fetches Spark and its Kafka connector, by a lock with hashes. Free of Django.

PySpark comes as a source archive that holds Spark's jars: it is unpacked into the places that its
own installation would give them, so that neither pip nor a second copy of 450 MB is needed. A file
that was begun is gone on with; a file whose hash is wrong is deleted and said.

No address stands here: the package index is the one that pip uses, the jars come from where the
Ivy in PySpark's archive would fetch them (or ``ODRADEK_MAVEN``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from dashboard.spark import carried
from dashboard.spark.home import PREPARED, SparkHome, lock

MAVEN_VARIABLE: Final = "ODRADEK_MAVEN"
TIMEOUT_S: Final = 60
PIECE_BYTES: Final = 1024 * 1024
ATTEMPTS: Final = 5
_IVY_DEFAULTS: Final = "org/apache/ivy/core/settings/repository.properties"
_IVY_ROOT: Final = re.compile(r"^ivy\.ibiblio\.default\.artifact\.root\s*=\s*(\S+)", re.MULTILINE)
_PIP_INDEX: Final = re.compile(r"--index-url\b.*?\(default (\S+)\)", re.DOTALL)
MAX_INDEX_BYTES: Final = 16 * 1024 * 1024
NEEDED_BYTES: Final = 1_000_000_000
_PLACES: Final = {
    "pyspark": "pyspark",
    "deps/jars": "pyspark/jars",
    "deps/bin": "pyspark/bin",
    "deps/sbin": "pyspark/sbin",
    "deps/licenses": "pyspark/licenses",
    "lib": "pyspark/python/lib",
}
"""Directories of PySpark's source archive, and where they are once it is installed."""

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there, and all of its bytes."""


class PrepareError(Exception):
    """Spark could not be prepared; said to a person."""


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    size: int
    sha256: str
    project: str = ""
    path: str = ""


def items() -> list[Item]:
    """PySpark and what it needs, and then the jars."""
    found = [
        Item(e["file"], e["bytes"], e["sha256"], project=e["project"]) for e in lock()["python"]
    ]
    for each in lock()["jars"]:
        found.append(
            Item(Path(each["path"]).name, each["bytes"], each["sha256"], path=each["path"])
        )
    return found


def prepare(home: SparkHome, source: Path | None, progress: Progress) -> None:
    """Fill ``home``, from the network or from a directory of files. Raises PrepareError."""
    if home.is_prepared:
        return
    if home.is_carried:
        _unpack_carried(home, progress)
        return
    downloads = home.directory / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(home.directory).free < NEEDED_BYTES:
            raise PrepareError(f"{home.directory} needs {NEEDED_BYTES // 10**6} MB of free space")
        shutil.rmtree(home.lib, ignore_errors=True)
        if source is not None and SparkHome(source).is_prepared:
            _copy(SparkHome(source), home, progress)
            return
        for item in items():
            if item.path and not home.lib.exists():
                _unpack_all(home, downloads, progress)
            _obtain(item, home, downloads / item.name, source, progress)
        _install_jars(home, downloads)
        (home.directory / PREPARED).write_text(json.dumps(lock()))
        shutil.rmtree(downloads, ignore_errors=True)
    except OSError as error:
        raise PrepareError(f"{error.filename or home.directory}: {error.strerror}") from None


def _unpack_carried(home: SparkHome, progress: Progress) -> None:
    progress(f"unpacking into {home.directory}", 0, 0)
    try:
        with carried.held(home.directory, lambda: None):
            pass
    except carried.NotUnpacked as error:
        raise PrepareError(str(error)) from None


def _copy(source: SparkHome, home: SparkHome, progress: Progress) -> None:
    """What another machine has prepared by the same lock. The jars are held against their hashes;
    of Spark itself the lock knows the archive alone, so it is taken as it is."""
    jars = [item for item in items() if item.path]
    for item in jars:
        _check(source.jars / item.name, item, str(source.jars / item.name))
    making = home.directory / "lib.making"
    shutil.rmtree(making, ignore_errors=True)
    progress(f"copying {source.directory}", 0, 0)
    shutil.copytree(source.lib, making)
    making.rename(home.lib)
    shutil.rmtree(home.jars, ignore_errors=True)
    home.jars.mkdir()
    for item in jars:
        shutil.copyfile(source.jars / item.name, home.jars / item.name)
    (home.directory / PREPARED).write_text(json.dumps(lock()))
    shutil.rmtree(home.directory / "downloads", ignore_errors=True)


def _check(path: Path, item: Item, called: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    if digest.hexdigest() != item.sha256:
        raise PrepareError(f"{called} is not the file that the lock names: its hash differs")


def _obtain(
    item: Item, home: SparkHome, target: Path, source: Path | None, progress: Progress
) -> None:
    if target.exists():
        return
    partial = target.with_name(target.name + ".partial")
    if source is not None:
        _take(item, source, partial, progress)
    else:
        _download(item, home, partial, progress)
    try:
        _check(partial, item, f"{source}/{item.name}" if source is not None else item.name)
    except PrepareError:
        partial.unlink()
        raise
    partial.rename(target)


def _take(item: Item, source: Path, partial: Path, progress: Progress) -> None:
    """The file may lie anywhere below the directory, as in a copy of a Maven repository."""
    found = next(iter(sorted(source.rglob(item.name))), None)
    if found is None:
        raise PrepareError(f"{source} has no {item.name}")
    shutil.copyfile(found, partial)
    progress(item.name, item.size, item.size)


def _download(item: Item, home: SparkHome, partial: Path, progress: Progress) -> None:
    url = urljoin(_maven(home), item.path) if item.path else _python_file(item)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _go_on(url, item, partial, progress)
            return
        except (OSError, urllib.error.URLError) as error:
            if attempt == ATTEMPTS or isinstance(error, urllib.error.HTTPError):
                reason = getattr(error, "reason", None) or error
                raise PrepareError(
                    f"{item.name} cannot be fetched from {url}: {reason}. Run it again to go on "
                    f"from here, or give a directory that holds the files by --from."
                ) from None


def _go_on(url: str, item: Item, partial: Path, progress: Progress) -> None:
    """From where an earlier download ended, if the server can do that."""
    have = partial.stat().st_size if partial.exists() else 0
    if have >= item.size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - of the lock
        if have and answer.status != 206:
            have = 0
        with partial.open("ab" if have else "wb") as file:
            while have <= item.size and (piece := answer.read(PIECE_BYTES)):
                file.write(piece)
                have += len(piece)
                progress(item.name, have, item.size)
    if have < item.size:
        raise ConnectionError("the connection ended before the file did")


def _maven(home: SparkHome) -> str:
    """Where the jars are: as told, or where Spark itself would look for them."""
    found = os.environ.get(MAVEN_VARIABLE, "")
    for path in [] if found else sorted((home.lib / "pyspark" / "jars").glob("ivy-*.jar")):
        with zipfile.ZipFile(path) as packed:
            match = _IVY_ROOT.search(packed.read(_IVY_DEFAULTS).decode())
        found = match[1] if match else ""
    if not found:
        raise PrepareError(
            f"where the jars are cannot be told. Name a Maven repository in {MAVEN_VARIABLE}, or"
            " give a directory that holds the files by --from."
        )
    return found.rstrip("/") + "/"


def _python_file(item: Item) -> str:
    """Where the package index, the one that pip uses here, keeps the file."""
    page = urljoin(_index(), f"{item.project}/")
    request = urllib.request.Request(  # noqa: S310 - the index that pip uses
        page, headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            document = json.loads(answer.read(MAX_INDEX_BYTES))
    except (OSError, ValueError) as error:
        raise PrepareError(
            f"the package index {_index()} cannot be asked: {getattr(error, 'reason', error)}. "
            f"Give a directory that holds {item.name} by --from."
        ) from None
    for each in document["files"]:
        if each["filename"] == item.name:
            return urljoin(page, str(each["url"]))
    raise PrepareError(f"the package index {_index()} has no {item.name}")


def _index() -> str:
    found = os.environ.get("PIP_INDEX_URL", "") or _pip("config", "get", "global.index-url").strip()
    if not found:
        match = _PIP_INDEX.search(_pip("download", "--help"))
        found = match[1] if match else ""
    if not found:
        raise PrepareError(
            "which package index to use cannot be told: this Python has no pip (`python -m"
            " ensurepip` brings it). Name one in PIP_INDEX_URL, or give a directory that holds the"
            " files by --from."
        )
    return found.rstrip("/") + "/"


def _pip(*arguments: str) -> str:
    """What it prints, without line breaks in between; nothing where it refuses, or is not there."""
    done = subprocess.run(  # noqa: S603 - words of our own
        [sys.executable, "-m", "pip", *arguments],
        capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "COLUMNS": "1000"},
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else ""


def _unpack_all(home: SparkHome, downloads: Path, progress: Progress) -> None:
    """Aside first: what has its name is whole."""
    making = home.directory / "lib.making"
    shutil.rmtree(making, ignore_errors=True)
    for each in lock()["python"]:
        archive = downloads / each["file"]
        progress(f"unpacking {each['project']}", 0, 0)
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(making)  # noqa: S202 - its hash is of the lock
        else:
            _unpack(archive, making)
    making.rename(home.lib)


def _install_jars(home: SparkHome, downloads: Path) -> None:
    shutil.rmtree(home.jars, ignore_errors=True)
    home.jars.mkdir()
    for item in items():
        if item.path:
            shutil.copyfile(downloads / item.name, home.jars / item.name)


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as packed:
        for member in packed:
            place = _place(member)
            if place is None:
                continue
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            source = packed.extractfile(member)
            assert source is not None
            with source, path.open("wb") as file:
                shutil.copyfileobj(source, file, PIECE_BYTES)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _place(member: tarfile.TarInfo) -> str | None:
    """Where a member of the archive belongs; None for what is not installed."""
    name = member.name.partition("/")[2]
    if not member.isfile() or ".." in Path(name).parts:
        return None
    for directory, place in _PLACES.items():
        if name.startswith(directory + "/"):
            return place + name[len(directory) :]
    return None


def as_document(home: SparkHome) -> dict[str, Any]:
    missing = home.missing()
    return {
        "directory": str(home.directory),
        "spark": lock()["spark"],
        "is_ready": missing is None,
        "problem": None if missing is None else str(missing),
    }
