"""What ``odradek serve`` finds out before it starts anything: a mistake costs one line, and nothing more.

In this order: is the directory served already, do processes of a killed serve still stop, are the
ports free, can the directory be written, is what lies there of a version that this one knows.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from appliance import child, data_version
from appliance.backup.restoration import refuse_unfinished
from appliance.failure import CommandError
from appliance.supervisor.process import PARENT_FD_VARIABLE
from appliance.supervisor.serve_lock import (
    FILE_NAME,
    DataDirectoryTaken,
    ServeLock,
    find_broker,
    is_locked,
    read_holder,
)

PREDECESSOR_TIMEOUT_S = 60


def refuse_taken(data_directory: Path) -> None:
    """Before ports are looked at: the same serve started twice holds them too."""
    path = data_directory / FILE_NAME
    if is_locked(path):
        raise _taken(data_directory, read_holder(path))


def _taken(data_directory: Path, holder: Mapping[str, Any]) -> CommandError:
    return CommandError(
        f"{data_directory} is in use by another `odradek serve`: process "
        f"{holder.get('pid', 'unknown')}, Kafka on {holder.get('kafka', 'unknown')}",
        hint="Stop that one first, or choose another directory with --data DIR.",
        code="DATA_DIRECTORY_TAKEN",
    )


def await_predecessors(data_directory: Path, note: Callable[[str], None]) -> None:
    """Wait for children of a serve that was killed: they stop by themselves, each in its time."""
    deadline = time.monotonic() + PREDECESSOR_TIMEOUT_S
    noted: set[tuple[str, str]] = set()
    while found := _processes_of(data_directory):
        for name, pid in found.items():
            if (name, pid) not in noted:
                noted.add((name, pid))
                if not _was_child(pid):
                    raise _held(data_directory, name, pid)
                note(f"the {name} of an earlier serve (process {pid}) still stops, waiting")
        if time.monotonic() > deadline:
            raise _held(data_directory, *next(iter(found.items())))
        time.sleep(0.1)


def _processes_of(data_directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    broker = find_broker(data_directory)
    if broker is not None:
        found["broker"] = broker
    for name in ("web", "worker"):
        path = child.lock_path(data_directory, name)
        if is_locked(path):
            with contextlib.suppress(OSError):
                found[name] = path.read_text(errors="replace").split(" ")[0].strip() or "unknown"
    return found


def _was_child(pid: str) -> bool:
    """Whether a supervisor started it; what a person started does not stop by itself."""
    try:
        environment = Path(f"/proc/{int(pid)}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True  # gone meanwhile: before its file was opened, or before it was read
    except (ValueError, OSError):
        return False
    return PARENT_FD_VARIABLE.encode() + b"=" in environment or not environment


def _held(data_directory: Path, name: str, pid: str) -> CommandError:
    return CommandError(
        f"{data_directory} is in use by a {name}, process {pid}",
        hint="Stop that one first, or choose another directory with --data DIR.",
        code="DATA_DIRECTORY_TAKEN",
    )


def refuse_taken_port(address: tuple[str, int], option: str) -> None:
    problem = bind_problem(address)
    if problem is None:
        return
    host, port = address
    if problem.errno == errno.EADDRINUSE:
        raise CommandError(
            f"port {port} on {host} is in use by another program",
            hint=f"Choose another one with {option}HOST:PORT; `odradek doctor` may tell who it is.",
            code="PORT_IN_USE",
        )
    raise CommandError(
        f"cannot listen on {host}:{port}: {problem.strerror}",
        hint=f"Choose an address of this machine with {option}HOST:PORT.",
        code="CANNOT_LISTEN",
    )


def bind_problem(address: tuple[str, int]) -> OSError | None:
    """Why the address cannot be listened on, found out by listening for a moment."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(target)
            trial.listen(1)
    except OSError as error:
        return error
    return None


def take(data_directory: Path, about: dict[str, Any], note: Callable[[str], None]) -> ServeLock:
    """The directory's lock, after which nobody else starts here; made if it is not there."""
    try:
        # Records, password hashes and sessions will lie there.
        data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = ServeLock.take(data_directory, about)
    except DataDirectoryTaken as error:
        raise _taken(data_directory, error.holder) from None
    except OSError as error:
        raise _not_writable(data_directory, error) from None
    try:
        refuse_unfinished(data_directory)
        data_version.bring_up_to_date(data_directory, note)
    except OSError as error:
        lock.release()
        raise _not_writable(data_directory, error) from None
    except CommandError:
        lock.release()
        raise
    return lock


def _not_writable(data_directory: Path, error: OSError) -> CommandError:
    hint = "Choose another one with --data DIR, or give this user the right to write there."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room there, or choose another one with --data DIR."
    return CommandError(
        f"cannot write to the data directory {data_directory}: {error.strerror}",
        hint=hint,
        code="DATA_DIRECTORY_NOT_WRITABLE",
    )
