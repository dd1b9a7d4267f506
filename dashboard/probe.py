"""Does something that speaks Kafka answer at this address?

One ApiVersions request (version 0, the oldest that every broker answers) on a plain socket: no
client library, so the supervisor stays small and a command knows within a millisecond that
nobody listens, where a client would retry until its timeout. Blocking; never called on a loop.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_REQUEST = struct.pack(">hhihs", 18, 0, 1, 1, b"o")
_FRAME = struct.pack(">i", len(_REQUEST)) + _REQUEST
_HEAD = struct.Struct(">ihi")
_RANGE = struct.Struct(">hhh")
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared only
MAX_ANSWER_BYTES = 64 * 1024
"""Bound of the answer: every API key that exists would take a sixtieth of it."""


class ProbeError(OSError):
    """Somebody listens, but does not speak Kafka (or is not ready to)."""


@dataclass(frozen=True, slots=True)
class ApiRanges:
    """The API keys that a broker serves, with their lowest and highest version."""

    ranges: dict[int, tuple[int, int]]

    def serves(self, api_key: int, version: int) -> bool:
        lowest, highest = self.ranges.get(api_key, (0, -1))
        return lowest <= version <= highest


def split_address(address: str, default_port: int = 9092) -> tuple[str, int]:
    """``HOST:PORT``, ``[V6]:PORT``, ``:PORT`` or ``PORT`` as a pair. Raises ValueError."""
    text = address.strip()
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = ("127.0.0.1", text) if text.isdigit() else (text, str(default_port))
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: write an IPv6 address in brackets, as [::1]:9092")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not HOST:PORT with a port from 1 to 65535")
    return host or "127.0.0.1", int(port)


def join_address(host: str, port: int) -> str:
    """The text that ``split_address`` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str, port: int) -> tuple[str, int]:
    """Where a process on this machine reaches what listens on ``host``."""
    return _ANY_ADDRESS.get(host, host), port


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there; a name other than localhost may lead anywhere."""
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def ask_api_versions(address: tuple[str, int], timeout_s: float) -> ApiRanges:
    """The broker's answer. Raises OSError: refused, timed out, or ``ProbeError``."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        connection.sendall(_FRAME)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not _HEAD.size <= size <= MAX_ANSWER_BYTES:
            raise ProbeError("what listens there does not speak the Kafka protocol")
        return _parse(_receive(connection, size))


def connect_only(address: tuple[str, int], timeout_s: float) -> None:
    """Whether anybody listens, where the protocol is hidden under TLS. Raises OSError."""
    socket.create_connection(address, timeout=timeout_s).close()


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ProbeError("the connection was closed before an answer came")
        data += piece
    return bytes(data)


def _parse(answer: bytes) -> ApiRanges:
    correlation_id, error_code, count = _HEAD.unpack_from(answer)
    if correlation_id != 1 or error_code != 0:
        raise ProbeError("what listens there does not speak the Kafka protocol")
    if not 0 <= count <= (len(answer) - _HEAD.size) // _RANGE.size:
        raise ProbeError("the answer to ApiVersions is cut short")
    ranges = {}
    for i in range(count):
        api_key, lowest, highest = _RANGE.unpack_from(answer, _HEAD.size + i * _RANGE.size)
        ranges[api_key] = (lowest, highest)
    return ApiRanges(ranges)
