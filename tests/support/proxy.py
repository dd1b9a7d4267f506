"""A reverse proxy as people put before a dashboard: with a path prefix that it strips or keeps.

One request a connection, bytes passed on as they come, so that WebSockets pass too. It adds the
client's address to X-Forwarded-For, as nginx's $proxy_add_x_forwarded_for does.
"""

import contextlib
import socket
import threading
from typing import Self

MAX_HEAD_BYTES = 64 * 1024


class ReverseProxy:
    """Listens on a loopback port until it is closed."""

    def __init__(self, upstream_port: int, prefix: str, *, strips: bool) -> None:
        self._upstream_port = upstream_port
        self._prefix = prefix
        self._strips = strips
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._prefix}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, address[0]), daemon=True).start()

    def _serve(self, client: socket.socket, address: str) -> None:
        with client, socket.create_connection(("127.0.0.1", self._upstream_port)) as upstream:
            head, rest = self._read_head(client)
            upstream.sendall(self._rewritten(head, address) + rest)
            back = threading.Thread(target=_pass_on, args=(upstream, client))
            back.start()
            _pass_on(client, upstream)
            back.join()

    def _read_head(self, client: socket.socket) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data and len(data) < MAX_HEAD_BYTES:
            piece = client.recv(4096)
            if not piece:
                break
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    def _rewritten(self, head: bytes, address: str) -> bytes:
        first, *lines = head.decode("latin1").split("\r\n")
        method, target, version = first.split(" ")
        assert target.startswith(self._prefix), f"this proxy does not serve {target}"
        if self._strips:
            target = target.removeprefix(self._prefix) or "/"
        is_upgrade = any(line.lower().startswith("upgrade:") for line in lines)
        forwarded = [address]
        kept = []
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "x-forwarded-for":
                forwarded.insert(0, value.strip())
            elif name.lower() != "connection" or is_upgrade:
                kept.append(line)
        kept.append(f"X-Forwarded-For: {', '.join(forwarded)}")
        if not is_upgrade:
            kept.append("Connection: close")
        return "\r\n".join([f"{method} {target} {version}", *kept, "", ""]).encode("latin1")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
