"""What ``odradek doctor`` asks ZooKeeper: each server of ``zookeeper.connect``, by the word ``srvr``.

That word is allowed by default since ZooKeeper 3.5; a server that listens and does not answer it may be well all
the same. Whether too few are there is the question: without a majority no topic can be made and no leader elected.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Final

from appliance.checks import Check, Verdict
from dashboard.probe import join_address, split_address

DEFAULT_PORT: Final = 2181
TIMEOUT_S: Final = 3.0
MOST_BYTES: Final = 64 * 1024
Ask = Callable[[tuple[str, int]], str]


def servers(connect: str) -> list[tuple[str, int]]:
    """The servers of ``host:port,host:port/path``."""
    found = []
    for each in connect.partition("/")[0].split(","):
        text = each.strip()
        if text:
            has_port = re.search(r":\d+$", text) is not None
            found.append(split_address(text if has_port else f"{text}:{DEFAULT_PORT}"))
    return found


def ask_srvr(address: tuple[str, int]) -> str:
    """What a server says of itself; empty when it listens and says nothing. Raises OSError."""
    told = b""
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        connection.sendall(b"srvr")
        while len(told) < MOST_BYTES and (piece := connection.recv(4096)):
            told += piece
    return told.decode("utf-8", "replace")


def check(connect: str, ask: Ask = ask_srvr) -> list[Check]:
    """One line for each server, and one when they are too few."""
    try:
        addresses = servers(connect)
    except ValueError as error:
        return [Check("ZooKeeper", Verdict.FAIL, f"zookeeper.connect={connect}: {error}")]
    found = [_check_server(address, ask) for address in addresses]
    working = sum(each.verdict is not Verdict.WARN for each in found)
    if working * 2 <= len(found):
        found.append(
            Check(
                "ZooKeeper",
                Verdict.FAIL,
                f"{working} of {len(found)} servers work, which is no majority",
                "Topics cannot be changed and leaders not elected until they are back: start them.",
            )
        )
    return found


def _check_server(address: tuple[str, int], ask: Ask) -> Check:
    name = f"ZooKeeper {join_address(*address)}"
    try:
        told = ask(address)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        return Check(
            name,
            Verdict.WARN,
            f"does not answer: {reason}",
            f"On {address[0]}: `systemctl start zookeeper`; if it runs there, a firewall is between.",
        )
    mode = re.search(r"^Mode: (\S+)", told, re.MULTILINE)
    version = re.search(r"^Zookeeper version: ([^\s,-]+)", told, re.MULTILINE)
    if mode is not None:
        words = f"{mode[1]}, version {version[1]}" if version else mode[1]
        return Check(name, Verdict.OK, words)
    if "not currently serving" in told:
        return Check(
            name,
            Verdict.WARN,
            "runs, but serves nobody",
            "It has no majority: start the other servers of the ensemble.",
        )
    return Check(name, Verdict.INFO, "listens, and does not say more (4lw.commands.whitelist=srvr)")
