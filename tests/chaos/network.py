"""A network of its own: a namespace for each broker on a bridge, and cuts between them by nftables.

Everything is in a namespace that this process was started in (`enter`), so the machine's network never sees any
of it, and it goes with the processes. Needs root, ip, nft, unshare and nsenter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn, Self

from tests.support import processes

OUTSIDE: Final = "10.99.0.254"
#: Set in the process that runs in a namespace of its own.
MARK: Final = "ODRADEK_CHAOS_NETWORK"
#: What a network needs, in a namespace that is gone at once.
TRIAL: Final = """
ip link add br0 type bridge
ip link add one0 type veth peer name other0
nft add table ip chaos
nft 'add chain ip chaos out { type filter hook output priority 0 ; }'
nft add rule ip chaos out ip daddr 10.99.0.1 meta l4proto tcp reject with tcp reset
unshare -n true
"""
LIMIT_SECONDS: Final = 30
DROP, REJECT = "drop", "reject with tcp reset"


def why_not() -> str | None:
    """What is missing here, if anything."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nft", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    try:
        run("unshare", "-n", "sh", "-e", "-c", TRIAL)
    except subprocess.SubprocessError as error:
        told = getattr(error, "stderr", None) or b""
        return f"the kernel does not let us: {told.decode(errors='replace').strip() or error}"
    return None


def is_entered() -> bool:
    return MARK in os.environ


def enter(module: str, arguments: list[str]) -> NoReturn:
    """That module again in this process's place, in a network of its own."""
    command = ["unshare", "-n", sys.executable, "-m", module, *arguments]
    os.execvpe(command[0], command, {**os.environ, MARK: "1"})


def address_of(number: int) -> str:
    return f"10.99.0.{number}"


class Network:
    """Only in a process that was entered."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._holders: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        assert is_entered(), "the machine's own network is not touched"
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        for number in self._numbers:
            self._add(number)
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _add(self, number: int) -> None:
        holder = self._holders[number] = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        own = Path("/proc/self/ns/net").readlink()
        theirs = Path(f"/proc/{holder.pid}/ns/net")
        processes.wait_until(lambda: theirs.readlink() != own, 10, "a namespace")
        link = f"broker{number}"
        run(
            "ip",
            "link",
            "add",
            link,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(holder.pid),
        )
        run("ip", "link", "set", link, "master", "br0", "up")
        inside = self.prefix(number)
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "address", "add", f"{address_of(number)}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "nft", "add table ip chaos")
        run(*inside, "nft", "add chain ip chaos out { type filter hook output priority 0 ; }")

    def prefix(self, number: int) -> tuple[str, ...]:
        """Of a command that is to run where that broker does."""
        return ("nsenter", "-t", str(self._holders[number].pid), "-n")

    def cut(self, number: int, towards: str, verdict: str) -> None:
        """What that broker sends to that address does not arrive."""
        rule = f"add rule ip chaos out ip daddr {towards} meta l4proto tcp {verdict}"
        run(*self.prefix(number), "nft", rule)

    def unplug(self, number: int) -> None:
        """Its machine is as good as gone: nothing comes or goes, and nobody is told."""
        run("ip", "link", "set", f"broker{number}", "down")

    def plug_in(self, number: int) -> None:
        run("ip", "link", "set", f"broker{number}", "up")

    def heal(self) -> None:
        for number in self._numbers:
            run(*self.prefix(number), "nft", "flush chain ip chaos out")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECONDS)
