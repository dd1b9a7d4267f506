"""What a handler may know about the request besides its content, and how it tells of brokers."""

from __future__ import annotations

from typing import NamedTuple

from broker.protocol.request import RequestHeader
from broker.server.connection import Connection


class RequestContext:
    """Connection and header of one request."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id")

    def __init__(self, connection: Connection, header: RequestHeader) -> None:
        self.connection = connection
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id

    @property
    def is_forwarded(self) -> bool:
        """Whether another broker of the cluster passed the request on."""
        proving = self.connection.proving
        return proving is not None and proving.is_proved


class Node(NamedTuple):
    """A broker as one client sees it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
