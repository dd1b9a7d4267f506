"""Networks of this machine's own making: namespaces that hang on one bridge, and threads that enter them. For root."""

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from tests.support import processes

_CLONE_NEWNET = 0x4000_0000
_T = TypeVar("_T")


def in_network_of(pid: int, work: Callable[[], _T]) -> _T:
    """`work` in a thread that is in that process's network, and so is what it starts."""

    def enter() -> _T:
        with open(f"/proc/{pid}/ns/net") as namespace:
            library = ctypes.CDLL(None, use_errno=True)
            if library.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return work()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(enter).result()


class Network:
    """A bridge. Each of `names` has an address on it from the beginning, which `hosts` tells."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 10)}
        self.hosts = directory / "hosts"
        lines = [f"{address} {name}\n" for name, address in self.addresses.items()]
        self.hosts.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        self._held: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._hub = self._hold()
        self._ip(self._hub, "link", "add", "bridge0", "type", "bridge")
        self._ip(self._hub, "link", "set", "bridge0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._held:
            process.kill()
            process.wait()

    def place(self, name: str) -> int:
        """A process of a network with this name's address, for `in_network_of`."""
        pid = self._hold()
        self._ip(pid, "link", "set", "lo", "up")
        self.attach(name, pid)
        return pid

    def attach(self, name: str, pid: int) -> None:
        """Once that process has a network of its own."""
        own = os.readlink("/proc/self/ns/net")
        processes.wait_until(
            lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 30, f"the network of {name}"
        )
        address = self.addresses[name]
        outer = f"port{address.rpartition('.')[2]}"
        veth = ("type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._ip(self._hub, "link", "add", outer, *veth)
        self._ip(self._hub, "link", "set", outer, "master", "bridge0", "up")
        self._ip(pid, "link", "set", "eth0", "up")
        self._ip(pid, "address", "add", f"{address}/24", "dev", "eth0")

    def _hold(self) -> int:
        process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._held.append(process)
        own = os.readlink("/proc/self/ns/net")
        processes.wait_until(
            lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own, 30, "a network"
        )
        return process.pid

    @staticmethod
    def _ip(pid: int, *words: str) -> None:
        subprocess.run(["nsenter", "--target", str(pid), "--net", "ip", *words], check=True)
