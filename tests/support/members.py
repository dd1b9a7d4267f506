"""Members of consumer groups as processes, each by some client, that may be stopped and killed.

What a member says of itself is kept in `records`, `owned` and `committed`; everything that is asked
here is only what the process has printed so far.
"""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import apache, foreign, processes

JAVA = "java"
PYTHON = ("confluent-kafka", "aiokafka", "kafka-python")
TELLS_NO_ASSIGNMENT = ("kafka-go",)
SESSION_MS = 3000
_JAVA_EVENTS = {"partitions_assigned": "assigned", "partitions_revoked": "revoked"}


class MemberProcess:
    """One member of `group` that reads `topic` and commits what it read."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        group: str,
        topic: str,
        directory: Path,
        *,
        balancer: str = "range",
        session: int = SESSION_MS,
        instance: str = "",
        reset: str = "earliest",
        more: Sequence[str] = (),
    ) -> None:
        self.client = client
        self.topic = topic
        self.owned: set[int] = set()
        self.records: list[tuple[int, int]] = []  # (partition, offset), as they came
        self.committed: dict[int, int] = {}
        self.assignment_count = 0
        self.errors = directory / f"{client}-{id(self):x}.txt"
        if client == JAVA:
            command = self._java(bootstrap, group, directory, session, instance, reset, balancer)
        else:
            command = foreign.require(client)
            flags = ["bootstrap", bootstrap, "group", group, "topic", topic, "session", session]
            flags += ["balancer", balancer, "reset", reset]
            if instance:
                flags += ["instance", instance]
            command.append("member")
            for name, value in zip(flags[::2], flags[1::2], strict=True):
                command += [f"--{name}", str(value)]
            command += more
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=foreign.REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _java(
        self,
        bootstrap: str,
        group: str,
        directory: Path,
        session: int,
        instance: str,
        reset: str,
        balancer: str,
    ) -> list[str]:
        settings = directory / f"java-{id(self):x}.properties"
        settings.write_text(
            f"heartbeat.interval.ms={session // 10}\nfetch.max.wait.ms=200\n"
            "metadata.max.age.ms=1000\nmax.poll.interval.ms=20000\n"
        )
        assignor = {
            "range": "RangeAssignor",
            "roundrobin": "RoundRobinAssignor",
            "sticky": "StickyAssignor",
            "cooperative": "CooperativeStickyAssignor",
        }[balancer]
        command, _ = apache.java_command(
            apache.require_jars(), "org.apache.kafka.tools.VerifiableConsumer"
        )
        command += ["--bootstrap-server", bootstrap, "--group-id", group, "--topic", self.topic]
        command += ["--session-timeout", str(session), "--reset-policy", reset]
        command += ["--command-config", str(settings)]
        command += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
        if instance:
            command += ["--group-instance-id", instance]
        return command

    # --------------------------------------------------------------------- what it says

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith(b"{"):
                    self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        event = said.get("event") or said.get("name")
        event = _JAVA_EVENTS.get(str(event), event)
        if event == "assigned":
            self.owned |= set(self._partitions(said))
            self.assignment_count += 1
        elif event == "revoked":
            self.owned -= set(self._partitions(said))
        elif event == "record":
            self.records.append((said["partition"], said["offset"]))
        elif event == "records_consumed":
            for part in said["partitions"]:
                offsets = range(part["minOffset"], part["maxOffset"] + 1)
                self.records += [(part["partition"], offset) for offset in offsets]
        elif event == "committed":
            self.committed |= {int(part): mark for part, mark in said["offsets"].items()}
        elif event == "offsets_committed" and said["success"]:
            self.committed |= {part["partition"]: part["offset"] for part in said["offsets"]}

    def _partitions(self, said: dict[str, Any]) -> list[int]:
        return [
            part["partition"] if isinstance(part, dict) else part for part in said["partitions"]
        ]

    # ----------------------------------------------------------------------- its end

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """A polite end: the member leaves its group."""
        status = processes.end(self.process, signal.SIGTERM, 60)
        self._reader.join()
        # A Java process that ends by a signal says so, after it has closed everything.
        assert status == 0 or (self.client == JAVA and status in (143, -15)), (
            f"{self.client}: status {status}\n{processes.tail(self.errors)}"
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.owned = set()


@contextmanager
def started() -> Iterator[list[MemberProcess]]:
    """A list for members; what is in it at the end is killed."""
    members: list[MemberProcess] = []
    try:
        yield members
    finally:
        for member in members:
            member.kill()


def share_all(members: Sequence[MemberProcess], partitions: int, *, idle: int = 0) -> bool:
    """Whether the partitions are shared out among the members, all but `idle` of whom have some."""
    owned = [set(member.owned) for member in members]
    return (
        sum(map(len, owned)) == partitions
        and set.union(*owned) == set(range(partitions))
        and sum(not mine for mine in owned) <= idle
    )


def wait_until_shared(
    members: Sequence[MemberProcess], partitions: int, seconds: float = 60, *, idle: int = 0
) -> None:
    def is_done() -> bool:
        for member in members:
            assert member.is_running, f"{member.client}\n{processes.tail(member.errors)}"
        return share_all(members, partitions, idle=idle)

    try:
        processes.wait_until(is_done, seconds, "the partitions to be shared out", every=0.05)
    except TimeoutError as error:
        shown = {member.client: sorted(member.owned) for member in members}
        raise TimeoutError(f"{error}: {shown}") from None


def read_by(members: Sequence[MemberProcess]) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for member in members:
        found |= set(member.records)
    return found
