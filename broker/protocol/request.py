"""The header in front of every request.

Read by hand, because it comes before the API and version are known to be served: a request at an
unknown version is still answered by its correlation id where the protocol allows it (ApiVersions).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from broker.protocol.api_versions import is_flexible
from broker.protocol.errors import MalformedRequest
from broker.protocol.varint import skip_tagged_fields

__all__ = ["MalformedRequest", "RequestHeader", "parse_header"]

_FIXED: Final = Struct(">hhih")  # api key, api version, correlation id, length of the client id


class RequestHeader:
    """Header versions 1 and 2. ``body_offset`` is where the request itself begins."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_offset: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version},"
            f" correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def parse_header(frame: memoryview) -> RequestHeader:
    """Header of a frame (without its length prefix); raises ``MalformedRequest``.

    The client id keeps its old two-byte length in header 2 too, and what is no UTF-8 in it is
    replaced, as Kafka does. An API outside the table is read with header 1.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    except StructError:
        raise MalformedRequest(f"a frame of {len(frame)} bytes holds no request header") from None
    offset = 10
    client_id = None
    if length >= 0:
        offset += length
        if offset > len(frame):
            raise MalformedRequest(f"client id of {length} bytes in a frame of {len(frame)}")
        client_id = str(frame[10:offset], "utf-8", "replace")
    elif length != -1:
        raise MalformedRequest(f"client id of {length} bytes")
    if is_flexible(api_key, api_version):
        offset = skip_tagged_fields(frame, offset)
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)
