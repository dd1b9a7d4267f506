"""What travels on the live tail's WebSocket, both ways.

Offsets, times and counters are text: a browser's numbers end at 2**53. Keys, values and headers are
somebody else's bytes: text when they are UTF-8, else base64; a page shows them as text only.
Messages from a browser are as hostile as its address: ``parse`` lets nothing else through.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NotRequired, TypedDict

MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_TOPICS: Final = 10
"""Of one socket."""
MAX_TOPIC_LENGTH: Final = 249
MAX_FILTER_LENGTH: Final = 2_000
MAX_LAST: Final = 1_000


class Bytes(TypedDict):
    """One of ``text`` and ``base64``; ``size`` is that of the whole, ``is_cut`` when it is longer."""

    size: int
    text: NotRequired[str]
    base64: NotRequired[str]
    is_cut: NotRequired[bool]


class Header(TypedDict):
    name: str
    value: Bytes | None


class Row(TypedDict):
    topic: str
    partition: int
    offset: str
    time: str
    is_append_time: NotRequired[bool]
    key: Bytes | None
    value: Bytes | None
    headers: list[Header]
    header_count: int
    """Of the record; ``headers`` may be cut."""


class Counters(TypedDict):
    """Since the start of this run: ``received`` = ``shown`` + ``skipped``.

    Records that still wait for their frame are in none of them. ``offsets`` tells where each
    partition stands when nothing waits: what lies between the start and there are ``received``
    records and ``holes`` offsets without one (markers, aborted, compacted away).
    """

    received: str
    shown: str
    skipped: str
    unmatched: str
    failed: str
    """Skipped because the filter could not be evaluated for them."""
    waiting: int
    holes: str
    offsets: NotRequired[dict[str, dict[str, str]]]


class TopicStatus(TypedDict):
    topic: str
    state: Literal["starting", "live", "waiting", "missing"]
    text: str


class FilterCheck(TypedDict):
    """The answer to ``check``: what an expression makes of the latest records."""

    id: int
    error: NotRequired[str]
    matched: NotRequired[int]
    failed: NotRequired[int]
    looked_at: NotRequired[int]


class TailFrame(TypedDict):
    """What a browser is sent until the end; it answers each with ``ack``."""

    type: Literal["frame"]
    seq: int
    run: int
    """Counts the starts of this socket: rows of an older run came before a change."""
    sent: str
    rows: list[Row]
    counters: NotRequired[Counters]
    topics: NotRequired[list[TopicStatus]]
    starts: NotRequired[dict[str, dict[str, str]]]
    """Once a run: the offsets from which ``received`` counts."""
    check: NotRequired[FilterCheck]
    filter_trouble: NotRequired[str]
    is_paused: NotRequired[bool]


class TailEnd(TypedDict):
    """Before a close: Daphne sends its code, but not its reason."""

    type: Literal["end"]
    code: int
    reason: str


class Start(TypedDict):
    """Also a change of topics or filter."""

    type: Literal["start"]
    topics: list[str]
    filter: str
    last: int
    """Records to begin with; 0: from now."""


class Ack(TypedDict):
    type: Literal["ack"]
    seq: int


class Pause(TypedDict):
    type: Literal["pause", "resume"]


class Check(TypedDict):
    type: Literal["check"]
    id: int
    filter: str


ClientMessage = Start | Ack | Pause | Check


class BadMessage(ValueError):
    """What is wrong with a message of a browser."""


def parse(text: str | None) -> ClientMessage:
    """Raises BadMessage."""
    if text is None:
        raise BadMessage("messages are text")
    if len(text) > MAX_MESSAGE_BYTES:
        raise BadMessage("the message is too long")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("the message is not JSON") from None
    if not isinstance(found, dict):
        raise BadMessage("the message is not an object")
    match found.get("type"):
        case "ack":
            return {"type": "ack", "seq": _number(found, "seq", 2**53)}
        case "pause" | "resume" as kind:
            return {"type": kind}
        case "check":
            return {
                "type": "check",
                "id": _number(found, "id", 2**53),
                "filter": _text(found, "filter", MAX_FILTER_LENGTH),
            }
        case "start":
            return {
                "type": "start",
                "topics": _topics(found.get("topics")),
                "filter": _text(found, "filter", MAX_FILTER_LENGTH).strip(),
                "last": _number(found, "last", MAX_LAST),
            }
    raise BadMessage("the message has no known type")


def _number(found: dict[str, Any], name: str, most: int) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise BadMessage(f"{name} has to be a number from 0 to {most}")
    return value


def _text(found: dict[str, Any], name: str, longest: int) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise BadMessage(f"{name} has to be a text of at most {longest} characters")
    return value


def _topics(value: Any) -> list[str]:
    is_list = isinstance(value, list) and all(
        isinstance(name, str) and 0 < len(name) <= MAX_TOPIC_LENGTH for name in value
    )
    if not is_list:
        raise BadMessage("topics have to be a list of names")
    if len(set(value)) > MAX_TOPICS:
        raise BadMessage(f"at most {MAX_TOPICS} topics")
    return sorted(set(value))
