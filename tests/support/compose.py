"""compose.yaml without an engine: what the file says, and its services in networks of their own on one bridge.

Services of our image run as the file has them. ZooKeeper, PostgreSQL and Redis, whose images would have to be pulled, are
this machine's own, made as their images make them from the file's variables, under the file's names. A service is started
when those that it waits for are healthy by their own checks, run where they run, as often as an engine would at most.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import yaml

from tests.support import container, judge, namespaces, postgres, processes
from tests.support.zookeeper import ZooKeeper

OUTSIDE = "outside"
#: Of an engine, where a check does not say it.
RETRIES = 3
_DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
_T = TypeVar("_T")


class Health(NamedTuple):
    """A check, and how long a service may be unhealthy after its start before an engine gives it up."""

    words: list[str]
    timeout_s: float
    patience_s: float

    @classmethod
    def of_service(cls, said: dict[str, Any]) -> Health:
        kind, *words = said["test"]
        assert kind == "CMD"
        patience = seconds_of(said.get("start_period", "0s"))
        patience += said["retries"] * seconds_of(said["interval"])
        return cls(words, seconds_of(said["timeout"]), patience)

    @classmethod
    def of_image(cls, said: dict[str, Any]) -> Health:
        kind, *words = said["Test"]
        assert kind == "CMD"
        interval, timeout, start = (
            said[each] / 1e9 for each in ("Interval", "Timeout", "StartPeriod")
        )
        return cls(words, timeout, start + said.get("Retries", RETRIES) * interval)


class File:
    """The file, with the defaults of its variables."""

    def __init__(self, path: Path) -> None:
        text = _DEFAULT.sub(lambda found: found[1], path.read_text())
        assert "$" not in text
        document = yaml.safe_load(text)
        self.services: dict[str, dict[str, Any]] = document["services"]
        self.volumes: set[str] = set(document["volumes"])

    def needs(self, name: str) -> dict[str, str]:
        """Services that have to be there before, and in which condition."""
        found = self.services[name].get("depends_on", {})
        if isinstance(found, list):
            return dict.fromkeys(found, "service_started")
        return {each: said["condition"] for each, said in found.items()}

    def in_order(self, name: str) -> list[str]:
        """What `docker compose up NAME` starts."""
        found: list[str] = []
        for each in self.needs(name):
            found += [one for one in self.in_order(each) if one not in found]
        return [*found, name]

    def is_ours(self, name: str) -> bool:
        return bool(self.services[name]["image"] == "odradek")

    def ports(self, name: str) -> list[tuple[str, int, int]]:
        """(address, published port, port there)."""
        found = []
        for each in self.services[name].get("ports", []):
            address, outer, inner = each.split(":")
            found.append((address, int(outer), int(inner)))
        return found


class Stack:
    """`docker compose up NAME`, from when it is ready. Nothing of it outlives the `with`."""

    def __init__(self, file: File, name: str, image: container.Image, directory: Path) -> None:
        self.file, self._image, self._directory = file, image, directory
        self.names = file.in_order(name)
        self.network = namespaces.Network(directory, [*self.names, OUTSIDE])
        self.running: dict[str, container.Running] = {}
        self._places: dict[str, int] = {}
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with self._exits:
            self._exits.enter_context(self.network)
            healthy: list[str] = []
            self._places[OUTSIDE] = self.network.place(OUTSIDE)
            for name in self.names:
                for other, condition in self.file.needs(name).items():
                    if condition == "service_healthy" and other not in healthy:
                        self._await_health(other)
                        healthy.append(other)
                if self.file.is_ours(name):
                    self._start_ours(name)
                else:
                    self._places[name] = self.network.place(name)
                    getattr(self, f"_start_{name}")(self.file.services[name])
                self._publish(name)
            for name in self.names:
                if name not in healthy:
                    self._await_health(name)
            self._exits = self._exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def in_network(self, name: str, work: Callable[[], _T]) -> _T:
        return namespaces.in_network_of(self._places[name], work)

    def run(self, name: str, *words: str, seconds: float = 60) -> str:
        """A program of this machine, in the network of a service that is not ours."""
        path = f"{postgres.programs()}:{os.environ['PATH']}"
        done = subprocess.run(
            ["nsenter", "--target", str(self._places[name]), "--net", "env", f"PATH={path}", *words],
            check=True, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
        return done.stdout

    def stop(self, name: str) -> int:
        """Its exit code, within the time that the file gives it."""
        return self.running[name].stop(seconds_of(self.file.services[name]["stop_grace_period"]))

    def health(self, name: str) -> Health:
        if self.file.is_ours(name):
            return Health.of_image(self._image.config["Healthcheck"])
        return Health.of_service(self.file.services[name]["healthcheck"])

    def is_healthy(self, name: str) -> bool:
        """By one look, inside."""
        check = self.health(name)
        try:
            if name in self.running:
                done = self.running[name].execute(*check.words, seconds=check.timeout_s)
                return done.returncode == 0
            self.run(name, *check.words, seconds=check.timeout_s)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def _await_health(self, name: str) -> None:
        what = f"{name}, to be healthy"
        try:
            patience = self.health(name).patience_s
            processes.wait_until(lambda: self.is_healthy(name), patience, what, every=0.5)
        except TimeoutError:
            said = self.running[name].said if name in self.running else ""
            raise AssertionError(f"{what}\n{said}") from None

    def _start_ours(self, name: str) -> None:
        service = self.file.services[name]
        # What `Running` does in any case.
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        ((volume, place),) = (each.split(":") for each in service["volumes"])
        assert volume in self.file.volumes
        assert place == "/data"
        self.running[name] = self._exits.enter_context(
            container.Running(
                self._image,
                self._directory / volume,
                service["environment"],
                *service["command"],
                network=(self.network, name),
            )
        )

    def _start_zookeeper(self, service: dict[str, Any]) -> None:
        assert service["environment"] == {"ZOO_ADMINSERVER_ENABLED": "false"}
        server = ZooKeeper(self._directory / "zookeeper", {"clientPortAddress": "0.0.0.0"})
        self.zookeeper = server
        server.host, server.port = self.network.addresses["zookeeper"], 2181
        self._exits.callback(server.close)
        self.in_network("zookeeper", server.start)

    def _start_postgres(self, service: dict[str, Any]) -> None:
        said = service["environment"]
        directory = self._directory / "postgres"
        directory.mkdir()
        self.postgres = self._exits.enter_context(postgres.unmade(directory, "0.0.0.0", 5432))
        self.postgres.make_like_image(said["POSTGRES_USER"], said["POSTGRES_PASSWORD"])
        self.in_network("postgres", self.postgres.start)
        self.postgres.run("createdb", "-U", said["POSTGRES_USER"], said["POSTGRES_DB"])

    def _start_redis(self, service: dict[str, Any]) -> None:
        program, *words = service["command"]
        directory = self._directory / "redis"
        directory.mkdir()
        # Their image is built without this protection, by which Debian's asks other machines for a password.
        words += ["--protected-mode", "no", "--dir", str(directory)]
        found = judge.program(program, "package redis-server")
        with (directory / "redis.txt").open("wb") as output:
            server = self.in_network(
                "redis",
                lambda: subprocess.Popen([found, *words], stdout=output, stderr=output),
            )
        self._exits.callback(processes.end, server, signal.SIGTERM, 20)

    def _publish(self, name: str) -> None:
        """Who connects to this port outside comes out there, as engines have it."""
        inside = ["nsenter", "--target", str(self._places[OUTSIDE]), "--net"]
        for address, outer, inner in self.file.ports(name):
            target = f"{self.network.addresses[name]}:{inner}"
            script = f"""
                set -e
                echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
                nft add table ip nat
                nft 'add chain ip nat out {{ type nat hook output priority -100; }}'
                nft 'add chain ip nat post {{ type nat hook postrouting priority 100; }}'
                nft add rule ip nat out ip daddr {address} tcp dport {outer} dnat to {target}
                nft add rule ip nat post ip saddr 127.0.0.0/8 oifname eth0 masquerade
            """
            subprocess.run([*inside, "sh", "-c", script], check=True)


def seconds_of(text: str) -> float:
    assert text.endswith("s")
    return float(text.removesuffix("s"))
