"""Sends one message to a webhook: signed, bounded in time and size, no redirects, checked addresses.

The signature is HMAC-SHA256, in hex, over the timestamp header, a dot, and the body's bytes; the key
is the channel's secret as UTF-8. The host's addresses are looked up once and the connection goes to
the address that was checked, so that a name cannot answer differently the second time.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from dashboard.alerting.outcome import Outcome

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
TOTAL_TIMEOUT_S = 20.0
"""However slowly the receiver drips its answer."""
RETRIED_STATUSES = frozenset({408, 425, 429})

TIMESTAMP_HEADER = "X-Odradek-Timestamp"
SIGNATURE_HEADER = "X-Odradek-Signature"
DELIVERY_HEADER = "X-Odradek-Delivery"
EVENT_HEADER = "X-Odradek-Event"


class BadAddress(Exception):
    """Where the URL leads to is not where a message may go; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart."""

    is_secure: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Raises BadAddress, with words for the form."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadAddress(f"That is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadAddress("The address has to begin with http:// or https:// and a host.")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("The address must not hold a user name or password.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadAddress("The address may hold printable ASCII characters only.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_secure = parts.scheme == "https"
    return Target(is_secure, host, port or (443 if is_secure else 80), path)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def send(
    url: str,
    secret: str,
    body: bytes,
    *,
    uid: str,
    event: str,
    may_reach_private: bool,
    now_ms: int,
    user_agent: str,
) -> Outcome:
    """One attempt. Never raises for what the network or the receiver does."""
    timestamp = str(now_ms // 1000)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": user_agent,
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: signature(secret, timestamp, body),
        DELIVERY_HEADER: uid,
        EVENT_HEADER: event,
    }
    try:
        target = parse(url)
        address = checked_address(target.host, target.port, may_reach_private)
        status = _post(target, address, body, headers)
    except BadAddress as error:
        return Outcome.refused(str(error))
    except TimeoutError:
        return Outcome.failed("It did not answer in time")
    except OSError as error:
        return Outcome.failed(
            f"It could not be reached: {error.strerror or str(error) or repr(error)}"
        )
    except http.client.HTTPException as error:
        return Outcome.failed(f"What it answered is no HTTP: {error!r}")
    return judged(status)


def judged(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome.sent(f"It answered {status}")
    if 300 <= status < 400:
        return Outcome.refused(f"It answered {status}, and redirects are not followed")
    if status in RETRIED_STATUSES or status >= 500:
        return Outcome.failed(f"It answered {status}")
    return Outcome.refused(f"It answered {status}")


def checked_address(host: str, port: int, may_reach_private: bool) -> str:
    """The IP address to connect to. Every address of the name has to be allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OSError(f"{host} has no address: {error}") from None
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    for address in addresses:
        _check(host, ipaddress.ip_address(address), may_reach_private)
    return addresses[0]


def _check(
    host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address, may_reach_private: bool
) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    # Clouds hand out credentials to whoever asks at a link-local address.
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise BadAddress(f"{host} leads to {address}, where no message may go")
    if not address.is_global and not may_reach_private:
        raise BadAddress(
            f"{host} leads to {address}, a private address, which this channel may not reach"
        )


class _Connection(http.client.HTTPConnection):
    """Connects to the address that was checked, and says the host's name."""

    def __init__(self, target: Target, address: str) -> None:
        super().__init__(target.host, target.port, timeout=CONNECT_TIMEOUT_S)
        self._target = target
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self._target.port), CONNECT_TIMEOUT_S)
        self.sock.settimeout(READ_TIMEOUT_S)
        if self._target.is_secure:
            context = ssl.create_default_context()
            # The handshake comes once the watchdog can reach the socket.
            secured = context.wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.sock = secured
            secured.do_handshake()


def _post(target: Target, address: str, body: bytes, headers: dict[str, str]) -> int:
    connection = _Connection(target, address)
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        if connection.sock is not None:
            # The thread that reads sees the end of the stream.
            connection.sock.shutdown(socket.SHUT_RDWR)

    watchdog = threading.Timer(TOTAL_TIMEOUT_S, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
        for name, value in {
            "Host": target.host_header,
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        # The status is all that counts: whatever body the receiver sends is left unread.
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        if is_late.is_set():
            raise TimeoutError from None
        raise
    finally:
        watchdog.cancel()
        connection.close()
    if is_late.is_set():
        # Headers that were cut off by us look like their end.
        raise TimeoutError
    return status
