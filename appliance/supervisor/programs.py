"""What ``odradek serve`` runs: how each program is started, and how one knows that it is ready."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dashboard import probe

PROBE_TIMEOUT_S = 0.25
"""The supervisor's loop waits this long at most for a program that has not made up its mind."""

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared only


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of child. ``is_ready`` must not block for longer than ``PROBE_TIMEOUT_S``."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


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


def reachable(host: str, port: int) -> tuple[str, int]:
    """Where a process on this machine reaches what listens on ``host``."""
    return _ANY_ADDRESS.get(host, host), port


def configured_listener(settings: Mapping[str, str]) -> tuple[str, int] | None:
    """The first listener of a broker's configuration, such as ``PLAINTEXT://:9092``."""
    first = settings.get("listeners", "").split(",")[0].strip()
    if not first:
        return None
    _, _, address = first.partition("://")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
