"""What ``odradek serve`` runs: how each program is started, and how one knows that it is ready."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance import child
from dashboard import probe

PROBE_TIMEOUT_S = 0.25
"""The supervisor's loop waits this long at most for a program that has not made up its mind."""


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of child. ``is_ready`` must not block for longer than ``PROBE_TIMEOUT_S``."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


NAMES = ("broker", "worker", "web")
"""All programs, in the order in which they start; they stop the other way round."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What of ``odradek serve``'s options is the broker's."""

    data_directory: Path
    listen: str | None
    """None: the listeners stand in the configuration."""
    advertised: str | None = None
    config: Path | None = None
    properties: Sequence[tuple[str, str]] = ()


def broker_program(options: BrokerOptions, address: tuple[str, int]) -> Program:
    """The broker, ready when it answers ApiVersions at ``address``."""
    # -P: a directory called broker where somebody happens to stand is not the broker.
    command = [sys.executable, "-P", "-m", "broker", "--data", str(options.data_directory)]
    if options.listen is not None:
        command += ["--listen", options.listen]
    if options.advertised is not None:
        command += ["--advertised", options.advertised]
    if options.config is not None:
        command += ["--config", str(options.config)]
    for key, value in options.properties:
        command += ["--property", f"{key}={value}"]

    def is_ready() -> bool:
        try:
            probe.ask_api_versions(address, PROBE_TIMEOUT_S)
        except OSError:
            return False
        return True

    return Program("broker", command, is_ready)


def web_program(
    address: tuple[str, int], root_path: str, environment: Mapping[str, str]
) -> Program:
    """The dashboard, ready when it says that it lives; whether the broker answers is its page's."""

    def is_ready() -> bool:
        connection = http.client.HTTPConnection(*address, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", f"{root_path}/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return Program("web", [sys.executable, "-P", "-m", "appliance.web"], is_ready, environment)


def worker_program(data_directory: Path, environment: Mapping[str, str]) -> Program:
    """Jobs and schedules, ready when it says so in the file of its lock."""
    return Program(
        "worker",
        [sys.executable, "-P", "-m", "appliance.worker"],
        lambda: child.is_ready(data_directory, "worker"),
        environment,
    )


def configured_listener(settings: Mapping[str, str]) -> tuple[str, int] | None:
    """The first listener of a broker's configuration, such as ``PLAINTEXT://:9092``."""
    return next(iter(configured_listeners(settings)), None)


def configured_listeners(settings: Mapping[str, str]) -> list[tuple[str, int]]:
    """All of them. Raises ValueError."""
    found = []
    for text in filter(None, map(str.strip, settings.get("listeners", "").split(","))):
        _, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found
