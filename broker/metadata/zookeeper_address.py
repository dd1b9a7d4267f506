"""Where the ensemble is and how we are known there: from settings, without kazoo."""

from __future__ import annotations

from typing import NamedTuple


class ZooKeeperAddress(NamedTuple):
    """``hosts`` is kazoo's list ``host:port,…``; ``chroot`` is empty or begins with a slash.

    ``digest`` (``user:password``): nodes that we make are for whoever has it only.
    Files are PEM; without ``certificate_file`` the server does not ask who we are.
    """

    hosts: str
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    digest: str = ""
    is_tls: bool = False
    trust_file: str | None = None
    certificate_file: str | None = None
    key_password: str | None = None
    is_host_name_checked: bool = True


def parse_connect(text: str) -> tuple[str, str]:
    """``host:port,host:port/chroot`` as (hosts, chroot). Raises ValueError, with a sentence."""
    hosts, slash, path = text.strip().partition("/")
    names = [host.strip() for host in hosts.split(",")]
    for name in names:
        host, _, port = name.rpartition(":") if ":" in name.rpartition("]")[2] else (name, "", "")
        if not host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
            raise ValueError(f"{name!r} is not HOST:PORT")
    chroot = f"/{path.strip('/')}" if slash and path.strip("/") else ""
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"{chroot} is not a path of ZooKeeper's")
    return ",".join(names), chroot
