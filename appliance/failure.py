"""What a command says when it cannot do what was asked, and what to do next.

Exit codes: 0 done, 1 Kafka refused (or one item of several failed), 2 wrong usage, 3 no
connection, 10 unhealthy, 130 interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dashboard.cluster import KafkaFailure

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_CONNECTED = 3
EXIT_UNHEALTHY = 10
EXIT_INTERRUPTED = 130

SEVERAL_NODES = (
    "more than one node with web or worker needs DATABASE_URL and a Celery URL"
    " (database_url and celery_url in the configuration)"
)

_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "`odradek topic list` shows what exists, `odradek topic create NAME` makes a topic."
    ),
    "TOPIC_ALREADY_EXISTS": (
        "Add --if-not-exists to accept it as it is; `odradek topic describe NAME` shows it."
    ),
    "INVALID_TOPIC_EXCEPTION": "A name has 1 to 249 letters, digits, '.', '_' or '-'.",
    "INVALID_CONFIG": "`odradek config get --topic NAME -a` lists every key with its value.",
    "INVALID_PARTITIONS": "Partitions can be added, never taken away: ask for a higher total.",
    "INVALID_REPLICATION_FACTOR": (
        "A topic cannot have more replicas than there are brokers: `odradek status` counts them."
    ),
    "OFFSET_OUT_OF_RANGE": "`odradek topic describe NAME -p` shows where each log starts and ends.",
    "MESSAGE_TOO_LARGE": (
        "Raise the topic's limit: odradek topic alter NAME --set max.message.bytes=N"
    ),
    "INVALID_RECORD": "`odradek config get --topic NAME cleanup.policy`: compaction needs keys.",
    "KAFKA_STORAGE_ERROR": "The disk may be full: run `odradek doctor` on the broker's machine.",
    "NOT_ENOUGH_REPLICAS": "`odradek status` shows which replicas are behind.",
    "TOPIC_DELETION_DISABLED": "The broker runs with delete.topic.enable=false.",
    "POLICY_VIOLATION": "The topic's cleanup.policy does not allow this.",
    "UNSUPPORTED_VERSION": "The cluster is too old for this command, or does not offer it.",
    "GROUP_ID_NOT_FOUND": "`odradek group list` shows which groups there are.",
    "NON_EMPTY_GROUP": (
        "Stop its consumers first: `odradek group describe GROUP --members` lists them."
    ),
    "UNKNOWN_MEMBER_ID": (
        "Offsets of a group with members are theirs to commit: stop them first; "
        "`odradek group describe GROUP --members` lists them."
    ),
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "Its members read this topic: stop them first; "
        "`odradek group describe GROUP --members` lists them."
    ),
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "The broker still reads the group's offsets after its start: try again in a moment."
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "`odradek status` shows whether the partitions of __consumer_offsets have leaders."
    ),
    "TIMED_OUT": (
        "The broker answered first and then not in time: `odradek doctor` dials the address "
        "that it advertises; --timeout waits longer."
    ),
    "AUTHENTICATION": (
        "User, password and mechanism stand in the client's properties: --command-config FILE or -X K=V."
    ),
    "SSL": (
        "ssl.ca.location names the authority to trust, security.protocol says whether there is TLS at all:"
        " --command-config FILE or -X K=V."
    ),
    "NOT_CONNECTED": (
        "Is it running? `odradek serve` starts a broker; -b HOST:PORT or ODRADEK_BOOTSTRAP names "
        "another one."
    ),
}
_TURNED_AWAY = ("AUTHENTICATION", "SSL")
_TRANSPORT_HINT = (
    "`odradek doctor` dials the address that the broker advertises; --timeout waits longer."
)


def hint_for(code: str, *, is_transport: bool = False) -> str | None:
    """What to do next about an error of this name."""
    return _HINTS.get(code, _TRANSPORT_HINT if is_transport else None)


@dataclass(frozen=True, slots=True)
class ItemError:
    """One thing of several that failed; ``subject`` says which."""

    code: str
    message: str
    subject: dict[str, Any] = field(default_factory=dict)
    hint: str | None = None

    @classmethod
    def of(cls, failure: KafkaFailure, **subject: Any) -> ItemError:
        hint = hint_for(failure.code, is_transport=failure.is_transport)
        for kind in ("topic", "broker"):
            if hint is not None and kind in subject:
                hint = hint.replace("--topic NAME", f"--{kind} {subject[kind]}")
                hint = hint.replace("NAME", str(subject[kind]))
        if hint is not None and "group" in subject:
            hint = hint.replace("GROUP", str(subject["group"]))
        return cls(failure.code, failure.message, subject, hint)

    def as_object(self) -> dict[str, Any]:
        found = {**self.subject, "code": self.code, "message": self.message}
        return found if self.hint is None else {**found, "hint": self.hint}

    def as_line(self) -> str:
        named = " ".join(f"{name} {value}" for name, value in self.subject.items())
        return f"{named}: {self.message} ({self.code})" if named else self.message


class CommandError(Exception):
    """The whole command failed; ``main`` prints it once and exits with its code."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str = "FAILED",
        exit_code: int = EXIT_FAILED,
    ) -> None:
        super().__init__(message)
        self.item = ItemError(code, message, {}, hint)
        self.exit_code = exit_code

    @classmethod
    def of(cls, failure: KafkaFailure, bootstrap: str) -> CommandError:
        if failure.is_transport:
            message = f"no Kafka broker answers: {failure.message}"
            if failure.code in _TURNED_AWAY:
                message = f"{bootstrap} does not let this client in: {failure.message}"
            elif failure.code != "NOT_CONNECTED":
                message = f"{bootstrap} stopped answering: {failure.message}"
            return cls(
                message,
                hint=hint_for(failure.code, is_transport=True),
                code=failure.code,
                exit_code=EXIT_NOT_CONNECTED,
            )
        return cls(
            f"{failure.message} ({failure.code})", hint=hint_for(failure.code), code=failure.code
        )
