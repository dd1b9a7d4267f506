"""What ``odradek doctor`` looks at. Each check reads, changes nothing, and never raises.

OK and INFO need nothing; WARN works but will hurt some day; FAIL does not work. A hint tells what
to do about the latter two.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from appliance import VERSION
from appliance.output import format_size
from appliance.supervisor import serve_lock
from broker import compiled
from broker.model.data_layout import LAYOUT_NAME, RESTORING_NAME, newer_than_known, read_layout
from dashboard import probe
from dashboard.probe import join_address
from dashboard.spark.home import SparkHome, lock
from dashboard.spark.java import HINT, find_java

MIN_PYTHON = (3, 11)
MIN_DESCRIPTORS = 65_536
LOW_DISK_BYTES = 5_000_000_000
LOW_DISK_FRACTION = 0.10
TINY_DISK_BYTES = 500_000_000
FUTURE_MS = 60_000
MOST_SKEW_MS = 1000
MIN_MAPS = 65_530
SYNCS = 9
SLOW_SYNC_MS = 50.0
DIAL_TIMEOUT_S = 3.0
_ODD_FILE_SYSTEMS = ("btrfs", "zfs", "9p", "fuse", "overlay", "aufs")
_REMOTE_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "glusterfs")
_UNSPECIFIED = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104 - told, not bound
_SET_CLOCK = "As root: `timedatectl set-ntp true`, or `apt install chrony`"
_CLOCK_UNSYNCHRONISED = 5
"""``TIME_ERROR`` of adjtimex(2)."""


class Verdict(StrEnum):
    OK = "OK"
    INFO = "INFO"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    detail: str
    hint: str | None = None


def check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= MIN_PYTHON:
        return Check("python", Verdict.OK, version)
    return Check("python", Verdict.FAIL, version, "Odradek needs Python 3.11 or newer.")


def check_descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    detail = f"limit {soft}, may be raised to {'any number' if unlimited else hard}"
    if unlimited or hard >= MIN_DESCRIPTORS:
        return Check("file descriptors", Verdict.OK, detail)
    return Check(
        "file descriptors",
        Verdict.WARN,
        detail,
        f"Thousands of clients need more: `ulimit -Hn {MIN_DESCRIPTORS}`, or LimitNOFILE= in a unit.",
    )


def check_maps(path: Path = Path("/proc/sys/vm/max_map_count")) -> Check:
    """Hot tails are mapped, 256 at most; Java for reports and libraries take the rest."""
    name = "vm.max_map_count"
    try:
        limit = int(path.read_text())
    except (OSError, ValueError):
        return Check(name, Verdict.INFO, "not known")
    if limit >= MIN_MAPS:
        return Check(name, Verdict.OK, str(limit))
    return Check(name, Verdict.WARN, str(limit), f"As root: sysctl -w vm.max_map_count={MIN_MAPS}")


def check_sync(directory: Path, now_ns: Callable[[], int] = time.perf_counter_ns) -> Check:
    """How long a small write takes to the disk, by a file without a name: nothing stays."""
    name = "disk sync"
    place = _existing_parent(directory)
    taken = []
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            for _ in range(SYNCS):
                file.write(bytes(4096))
                began = now_ns()
                os.fdatasync(file.fileno())
                taken.append((now_ns() - began) / 1e6)
    except OSError as error:
        return Check(name, Verdict.INFO, f"not known: {error.strerror}")
    median = sorted(taken)[SYNCS // 2]
    detail = f"4 KB in {median:.1f} ms, {max(taken):.1f} ms at most"
    if median < SLOW_SYNC_MS:
        return Check(name, Verdict.OK, detail)
    return Check(
        name,
        Verdict.WARN,
        detail,
        "Changes of topics and topics with flush.messages=1 wait for it: choose a faster disk with"
        " --data DIR; `iostat -x 1` tells who keeps this one busy.",
    )


def check_java() -> Check:
    """Java is for Spark reports alone; its absence is no fault."""
    java = find_java()
    if java.major is None and java.path is None:
        return Check("java", Verdict.INFO, java.problem, f"Only Spark reports need it. {HINT}")
    if java.problem:
        return Check("java", Verdict.WARN, java.problem, f"Only Spark reports need it. {HINT}")
    return Check("java", Verdict.OK, f"version {java.major} at {java.path}")


def check_spark(home: SparkHome) -> Check:
    missing = home.missing()
    if missing is None:
        return Check("spark", Verdict.OK, f"version {lock()['spark']} at {home.directory}")
    return Check("spark", Verdict.INFO, missing.what, f"Only reports need it. {missing.hint}")


def check_clock(data_directory: Path, now_ms: int) -> Check:
    """Record timestamps and retention follow the wall clock."""
    newest_ms = newest_file_ms(data_directory)
    if newest_ms is not None and newest_ms > now_ms + FUTURE_MS:
        ahead_s = (newest_ms - now_ms) // 1000
        return Check(
            "clock",
            Verdict.WARN,
            f"files in the data directory are {ahead_s} s from the future",
            "The clock went back: records written before it did are kept longer by retention."
            f" {_SET_CLOCK}.",
        )
    state = kernel_clock_state()
    if state == _CLOCK_UNSYNCHRONISED:
        return Check(
            "clock",
            Verdict.WARN,
            "not synchronised, as far as the kernel knows",
            f"{_SET_CLOCK}; in a container on its host.",
        )
    return Check("clock", Verdict.OK, "synchronised" if state is not None else "state not known")


def check_other_clocks(brokers: Iterable[Mapping[str, Any]]) -> list[Check]:
    """``brokers``: as the broker here has compared its clock with theirs."""
    return [_check_other_clock(each) for each in brokers]


def _check_other_clock(told: Mapping[str, Any]) -> Check:
    name = f"clock of broker {told['broker_id']}"
    if "error" in told:
        return Check(name, Verdict.INFO, f"not known: {told['error']}")
    ahead_ms, doubt_ms = int(told["ahead_ms"]), int(told["doubt_ms"])
    words = f"{abs(ahead_ms)} ms {'behind' if ahead_ms < 0 else 'ahead of'} this broker's"
    if abs(ahead_ms) - doubt_ms <= MOST_SKEW_MS:
        return Check(name, Verdict.OK, f"{words}, give or take {doubt_ms}")
    return Check(
        name,
        Verdict.WARN,
        words,
        f"{_SET_CLOCK}, on both: timestamps of records and retention go by them.",
    )


def newest_file_ms(directory: Path) -> int | None:
    """The newest time among a directory's files and its subdirectories."""
    try:
        with os.scandir(directory) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
    except OSError:
        return None
    return max(times) // 1_000_000 if times else None


def kernel_clock_state() -> int | None:
    """The state that adjtimex(2) returns when it is asked without changing anything."""
    try:
        buffer = ctypes.create_string_buffer(512)  # struct timex takes 208 bytes; modes = 0
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return state if isinstance(state, int) and state >= 0 else None


def check_data_directory(directory: Path) -> Check:
    if not directory.exists():
        parent = _existing_parent(directory)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check("data directory", Verdict.OK, f"{directory} will be made")
        return Check(
            "data directory",
            Verdict.FAIL,
            f"{directory} does not exist, and {parent} cannot be written",
            "Choose another one with --data DIR.",
        )
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        return Check(
            "data directory",
            Verdict.FAIL,
            f"{directory} cannot be written",
            f"Choose another one with --data DIR, or as root: `chown -R {os.geteuid()} {directory}`.",
        )
    return Check("data directory", Verdict.OK, f"{directory}, {_held_by(directory)}")


def check_version(directory: Path) -> list[Check]:
    """What `odradek serve` would refuse to start on; nothing where it is well."""
    name = "data version"
    mark = directory / RESTORING_NAME
    try:
        version = newer_than_known(directory)
        read_layout(directory)
        is_restoring = mark.exists()
    except ValueError:
        return [
            Check(
                name,
                Verdict.FAIL,
                f"{directory / LAYOUT_NAME} cannot be understood",
                f"If no other version wrote this directory: `rm {directory / LAYOUT_NAME}`.",
            )
        ]
    except OSError:
        return []  # told by the check of the directory
    if version is not None:
        return [
            Check(
                name,
                Verdict.FAIL,
                f"written by Odradek {version}, which is newer than this {VERSION}",
                "Run that version or a later one; data is never taken back to an older one.",
            )
        ]
    if is_restoring:
        return [
            Check(
                name,
                Verdict.FAIL,
                "a restore from a backup was interrupted",
                f"Call it again, it begins anew: `odradek backup restore BACKUPS --data {directory}`.",
            )
        ]
    return []


def _held_by(directory: Path) -> str:
    lock = directory / serve_lock.FILE_NAME
    if serve_lock.is_locked(lock):
        holder = serve_lock.read_holder(lock)
        return f"held by `odradek serve`, process {holder.get('pid', 'unknown')}"
    broker = serve_lock.find_broker(directory)
    return "not in use" if broker is None else f"held by a broker alone, process {broker}"


def check_hot_path() -> Check:
    """Whether a broker started here runs compiled (decision 8)."""
    problem = compiled.why_not()
    if problem is None:
        return Check("hot path", Verdict.OK, "compiled")
    return Check(
        "hot path",
        Verdict.INFO,
        f"interpreted ({problem}), which is slower; `python -m broker.compiled.build` compiles it",
    )


def check_disk(directory: Path) -> Check:
    place = _existing_parent(directory)
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        return Check("disk space", Verdict.FAIL, f"{place}: {error.strerror}")
    detail = f"{format_size(usage.free)} of {format_size(usage.total)} free"
    hint = "Free some, or shorten retention: odradek config set --broker default log.retention.ms=N"
    if usage.free < TINY_DISK_BYTES:
        return Check("disk space", Verdict.FAIL, detail, hint)
    if usage.free < LOW_DISK_BYTES or usage.free < usage.total * LOW_DISK_FRACTION:
        return Check("disk space", Verdict.WARN, detail, hint)
    return Check("disk space", Verdict.OK, detail)


def check_file_system(directory: Path, mounts: str | None = None) -> Check:
    """Some file systems answer memory maps, locks or a full disk in their own way."""
    kind = file_system_of(_existing_parent(directory), mounts)
    name = "file system"
    if kind is None:
        return Check(name, Verdict.INFO, "not known")
    if kind.startswith(_REMOTE_FILE_SYSTEMS):
        return Check(
            name,
            Verdict.WARN,
            f"{kind}, over the network",
            "Locks and fsync may not mean there what they mean on a local disk: use one.",
        )
    if kind.startswith("tmpfs"):
        return Check(name, Verdict.WARN, "tmpfs", "This is memory: gone with the next boot.")
    if kind.startswith(_ODD_FILE_SYSTEMS):
        return Check(
            name,
            Verdict.INFO,
            f"{kind}: logs may be written without memory maps there, a little slower",
            "ext4 and xfs are the fast ones.",
        )
    return Check(name, Verdict.OK, kind)


def file_system_of(path: Path, mounts: str | None = None) -> str | None:
    """Type of the mount that holds ``path``, from the text of /proc/self/mountinfo."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return None
    target = str(path.resolve())
    best, kind = "", None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def check_port(
    address: tuple[str, int], bind_problem: Callable[[tuple[str, int]], OSError | None]
) -> Check:
    """Is the port free, or is it a broker that has it?"""
    host, port = address
    name = f"port {port}"
    problem = bind_problem(address)
    if problem is None:
        return Check(name, Verdict.OK, f"free on {host}")
    try:
        probe.ask_api_versions(address, DIAL_TIMEOUT_S)
    except OSError:
        return Check(
            name,
            Verdict.FAIL,
            f"cannot be listened on at {host}: {problem.strerror}",
            f"Something else has it (`ss -ltnp sport = :{port}` tells who), or the address is not this machine's:"
            " --listen HOST:PORT.",
        )
    return Check(name, Verdict.OK, f"a Kafka broker answers on {host}")


def check_advertised(
    brokers: Iterable[tuple[int, str, int]], *, dial: Callable[[tuple[str, int]], object]
) -> list[Check]:
    """Dial what clients are told: the address that they came in by proves nothing."""
    found = []
    for broker_id, host, port in brokers:
        unreached = Check(
            f"advertised by broker {broker_id}",
            Verdict.FAIL,
            f"{host}:{port} cannot be reached from here",
            "Clients connect there. Start it with --advertised HOST:PORT, as clients see it.",
        )
        found.append(_dialed((host, port), dial, unreached))
    return found


def check_other_listeners(
    broker_id: int,
    advertised: Mapping[str, tuple[str, int]],
    seen: tuple[str, int],
    *,
    dial: Callable[[tuple[str, int]], object],
) -> list[Check]:
    """Dial what the broker tells the clients of its other listeners than the one that we came by.

    They may be meant for a network that this machine is not in, so that is no failure.
    """
    found = []
    for listener, (host, port) in advertised.items():
        if (host, port) == seen:
            continue
        unreached = Check(
            f"listener {listener} of broker {broker_id}",
            Verdict.WARN,
            f"tells its clients {host}:{port}, which cannot be reached from here",
            "Run doctor with -b where these clients are; advertised.listeners has it.",
        )
        found.append(_dialed((host, port), dial, unreached))
    return found


def parse_listeners(text: str | None) -> dict[str, tuple[str, int]]:
    """``NAME://HOST:PORT,...`` by name; those without a host of their own are left out."""
    found = {}
    for piece in (text or "").split(","):
        name, separator, address = piece.strip().partition("://")
        host, _, port = address.rpartition(":")
        if separator and host not in _UNSPECIFIED and port.isdigit():
            found[name] = (host.strip("[]"), int(port))
    return found


def _dialed(
    address: tuple[str, int], dial: Callable[[tuple[str, int]], object], unreached: Check
) -> Check:
    """What came of dialing; ``unreached`` is the verdict when nobody answers."""
    try:
        dial(address)
    except OSError as error:
        return replace(unreached, detail=f"{unreached.detail}: {error.strerror or error}")
    return Check(unreached.name, Verdict.OK, f"{join_address(*address)} answers")


def _existing_parent(directory: Path) -> Path:
    path = directory.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
