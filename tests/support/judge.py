"""What a test says when its judge (a client, a tool, a runtime) is not on this machine.

On a person's machine a missing judge skips its tests with a printed reason; where
ODRADEK_REQUIRE_JUDGES is set, as in CI, the same is a failure.
"""

import os
import shutil
import socket
from typing import NoReturn

import pytest


def are_required() -> bool:
    return bool(os.environ.get("ODRADEK_REQUIRE_JUDGES"))


def missing(reason: str) -> NoReturn:
    if are_required():
        pytest.fail(f"judge missing: {reason}", pytrace=False)
    pytest.skip(f"judge missing: {reason}")


def program(name: str, hint: str) -> str:
    """The path of a program that the test needs."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed ({hint})")
    return found


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody takes connections on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
