"""Where alerts arrive in tests: a real HTTP server and a real SMTP server on loopback ports."""

import asyncio
import contextlib
import email
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage, Message
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One request, whatever it was answered."""

    path: str
    headers: Message
    body: bytes
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpSink:
    """`statuses` are given out first, one a request; then everything is answered `status`."""

    port: int = 0
    status: int = 200
    statuses: list[int] = field(default_factory=list)
    location: str = ""
    received: list[Received] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?from=odradek"

    def accepted(self, *events: str) -> list[Any]:
        """Bodies that were answered 200, of these events (all without)."""
        with self.lock:
            bodies = [one.json for one in self.received if one.status == 200]
        return [body for body in bodies if not events or body["event"] in events]


@contextmanager
def http_sink() -> Iterator[HttpSink]:
    sink = HttpSink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with sink.lock:
                status = sink.statuses.pop(0) if sink.statuses else sink.status
                sink.received.append(Received(self.path, self.headers, body, status))
            self.send_response(status)
            if sink.location:
                self.send_header("Location", sink.location)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mail:
    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        return self.message.get_content()


@dataclass
class SmtpSink:
    """Accepts every mail, but not for recipients in `refused`."""

    port: int = 0
    mails: list[Mail] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)


@contextmanager
def smtp_sink() -> Iterator[SmtpSink]:
    """As much of RFC 5321 as a sender needs, on a loop in a thread of its own."""
    sink = SmtpSink()
    loop = asyncio.new_event_loop()
    is_up = threading.Event()
    is_over = asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: _converse(sink, reader, writer), "127.0.0.1", 0
        )
        sink.port = server.sockets[0].getsockname()[1]
        is_up.set()
        await is_over.wait()
        server.close()
        await server.wait_closed()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    is_up.wait(10)
    try:
        yield sink
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


async def _converse(
    sink: SmtpSink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    def say(line: str) -> None:
        writer.write(line.encode() + b"\r\n")

    sender, recipients = "", []
    say("220 sink ESMTP")
    while line := (await reader.readline()).decode().strip():
        word = line.upper()
        if word.startswith("EHLO"):
            say("250-sink")
            say("250 8BITMIME")
        elif word.startswith("MAIL FROM:"):
            sender, recipients = _address(line), []
            say("250 OK")
        elif word.startswith("RCPT TO:"):
            if _address(line) in sink.refused:
                say("550 no such user here")
            else:
                recipients.append(_address(line))
                say("250 OK")
        elif word == "DATA":
            say("354 go on")
            lines = []
            while (data := await reader.readline()).rstrip(b"\r\n") != b".":
                lines.append(data[1:] if data.startswith(b"..") else data)
            message = email.message_from_bytes(b"".join(lines), policy=modern)
            assert isinstance(message, EmailMessage)
            sink.mails.append(Mail(sender, recipients, message))
            say("250 OK")
        elif word == "QUIT":
            say("221 bye")
            break
        else:
            say("250 OK" if word in ("RSET", "NOOP") else "502 what")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
