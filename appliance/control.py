"""The way to a local broker's control socket: one JSON line there, one back."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Final

from appliance.failure import EXIT_NOT_CONNECTED, CommandError

SOCKET_NAME: Final = "control.sock"
TIMEOUT_S: Final = 3600.0
"""A repair reads a whole log."""


def ask(data_directory: Path, command: str, **arguments: Any) -> dict[str, Any]:
    """The broker's answer. Raises CommandError when there is no broker, or when it refuses."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            _connect(connection, data_directory)
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = connection.makefile("rb").readline()
        except OSError as error:
            raise CommandError(
                f"no broker runs on the data directory {data_directory}: {error.strerror or error}",
                hint="--data DIR names it; `odradek serve` starts a broker.",
                code="NOT_CONNECTED",
                exit_code=EXIT_NOT_CONNECTED,
            ) from None
    if not line:
        raise CommandError("the broker ended before it answered", code="NOT_CONNECTED")
    answer: dict[str, Any] = json.loads(line)
    if not answer.pop("ok", False):
        raise CommandError(str(answer.get("error")))
    return answer


def _connect(connection: socket.socket, data_directory: Path) -> None:
    # A socket's path has room for 108 bytes only.
    descriptor = os.open(data_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)
