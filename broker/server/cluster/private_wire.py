"""Frames of the APIs that only brokers of one cluster use, and how one proves that it is one.

Kafka's frame and header (version 1), keys from ``PRIVATE_FROM`` up, JSON behind them, and behind a line
feed record batches where they belong to it; none of them is told in ApiVersions. A connection begins with the proof: both sides send a nonce, then each
shows an HMAC of both under the cluster's secret, which who reads the store knows. The caller's comes
first; who cannot show it is told nothing and loses the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from broker.server.cluster import PRIVATE_FROM

if TYPE_CHECKING:
    from broker.replication.fetch_session import FetchSession

VERSION: Final = 0
NONCE_BYTES: Final = 16
CLIENT_ID: Final = b"odradek-broker"
#: JSON has none outside of its strings, and writes it otherwise inside.
BEFORE_BATCHES: Final = b"\n"
#: Of the JSON before batches: names, and the numbers of partitions.
MAX_HEAD_BYTES: Final = 1024 * 1024

_HEAD: Final = Struct(">ihhih")
_LENGTH: Final = Struct(">i")
#: Of a request, in front of its correlation id.
_KEY_AND_VERSION_BYTES: Final = 4


class PrivateKey(IntEnum):
    PROVE = PRIVATE_FROM
    PULL_IMAGE = PRIVATE_FROM + 1
    CREATE_TOPICS = PRIVATE_FROM + 2
    ALTER_ISR = PRIVATE_FROM + 3
    REFUSAL = PRIVATE_FROM + 4
    LEAVE = PRIVATE_FROM + 5
    WRITE_MARKERS = PRIVATE_FROM + 6
    ASK_TRANSACTION = PRIVATE_FROM + 7
    TELL_TIME = PRIVATE_FROM + 8
    IMPORT = PRIVATE_FROM + 9


class Proving:
    """Of the called: a connection on its way to be trusted."""

    __slots__ = ("caller_nonce", "fetch_session", "is_proved", "own_nonce")

    def __init__(self, caller_nonce: str) -> None:
        self.caller_nonce = caller_nonce
        self.own_nonce = new_nonce()
        self.is_proved = False
        #: Of a follower that fetches over this connection.
        self.fetch_session: FetchSession | None = None


def encode_request(
    key: PrivateKey, correlation_id: int, body: Any, batches: bytes | bytearray | None = None
) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    if batches is not None:
        data += BEFORE_BATCHES + batches
    size = _HEAD.size - _LENGTH.size + len(CLIENT_ID) + len(data)
    return _HEAD.pack(size, key, VERSION, correlation_id, len(CLIENT_ID)) + CLIENT_ID + data


def split_body(body: memoryview) -> tuple[Any, bytearray]:
    """What was asked, and the batches behind it. Raises ValueError."""
    head, separator, _ = bytes(body[:MAX_HEAD_BYTES]).partition(BEFORE_BATCHES)
    return json.loads(head), bytearray(body[len(head) + len(separator) :])


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    """A request without its length, as it is sent under another id: with its length."""
    start = _KEY_AND_VERSION_BYTES
    return b"".join(
        (
            _LENGTH.pack(len(frame)),
            frame[:start],
            _LENGTH.pack(correlation_id),
            frame[start + _LENGTH.size :],
        )
    )


def encode_answer(correlation_id: int, data: bytes) -> bytes:
    return _LENGTH.pack(_LENGTH.size + len(data)) + _LENGTH.pack(correlation_id) + data


def correlation_id_of(frame: memoryview) -> int:
    """Of an answer without its length, four bytes at least."""
    return int(_LENGTH.unpack_from(frame)[0])


def split_answer(frame: bytes) -> tuple[int, bytes]:
    """(correlation id, body) of a frame without its length."""
    return _LENGTH.unpack_from(frame)[0], frame[_LENGTH.size :]


def new_nonce() -> str:
    return secrets.token_hex(NONCE_BYTES)


def proof(secret: bytes, side: str, caller_nonce: str, own_nonce: str) -> str:
    """``side``: who shows it, "caller" or "called"; so neither can be shown back."""
    text = f"{side} {caller_nonce} {own_nonce}".encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def is_proof(shown: object, expected: str) -> bool:
    return isinstance(shown, str) and hmac.compare_digest(shown.encode(), expected.encode())
