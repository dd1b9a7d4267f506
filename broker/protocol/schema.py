"""The way to every message by API and version: decode a request, build and encode a response.

Messages are kio's typed classes, imported when a version is first asked for. A handler is written
once, for the newest version; ``response_types`` gives it the classes of the request's version::

    request = schema.decode_request(header.api_key, header.api_version, frame, header.body_offset)
    types = schema.response_types(header.api_key, header.api_version)
    response = types.DescribeClusterResponse(
        throttle_time=0,                          # milliseconds; kio's durations work as well
        error_code=ErrorCode.NONE,                # any integer
        error_message=None,
        endpoint_type=1,                          # version 1 and later: dropped in version 0
        cluster_id=cluster_id,
        controller_id=1,
        brokers=[
            types.DescribeClusterBroker(broker_id=1, host=host, port=port, rack=None, is_fenced=False)
        ],
        cluster_authorized_operations=-2147483648,
    )
    frame = schema.encode_response(header.api_key, header.api_version, header.correlation_id, response)

Names are kio's: the snake case of Kafka's, without ``_ms`` for durations and times
(``throttleTimeMs`` is ``throttle_time``). A field that this version does not have is dropped, a
class that it does not have builds None; a name that no served version has is a TypeError, so that
a slip of the pen cannot hide. A field that is not given takes its default, if it has one.

``encode_response`` returns the whole frame, length first. ``error_responses`` answers a whole
request with one error, in the request's own version.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from struct import Struct
from struct import error as StructError
from types import ModuleType
from typing import Any

from broker.protocol.api_versions import SERVED, ApiKey, is_flexible
from broker.protocol.codec import Cursor, Reader, entity_codec
from broker.protocol.errors import MalformedRequest

_LENGTH_AND_CORRELATION_ID = Struct(">ii")

#: Held while a message's modules are imported. A version's package and its modules import each other:
#: two threads that come from both ends (the loop at a request, and ``preload``) wait for each other, and
#: Python ends one of them with an error.
_importing = threading.Lock()

#: Modules of messages that kio lacks, or that have the layout of an earlier version.
_ELSEWHERE = {
    (ApiKey.API_VERSIONS, 5, "request"): "broker.protocol.supplements.api_versions_v5",
    (ApiKey.API_VERSIONS, 5, "response"): "kio.schema.api_versions.v4.response",
    (ApiKey.DELETE_GROUPS, 3, "request"): "kio.schema.delete_groups.v2.request",
    (ApiKey.DELETE_GROUPS, 3, "response"): "broker.protocol.supplements.delete_groups_v3",
    (ApiKey.TXN_OFFSET_COMMIT, 6, "request"): "broker.protocol.supplements.txn_offset_commit_v6",
    (ApiKey.TXN_OFFSET_COMMIT, 6, "response"): "broker.protocol.supplements.txn_offset_commit_v6",
}


def decode_request(api_key: int, version: int, frame: memoryview, offset: int) -> Any:
    """The request that begins at ``offset``; raises ``MalformedRequest``.

    The version must be served. Bytes behind the request are ignored, as Kafka does.
    """
    read = _request_reader(api_key, version)
    try:
        return read(Cursor(frame, offset))
    except StructError as error:  # pragma: no cover - lengths are checked before
        raise MalformedRequest(str(error)) from None


def encode_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """The frame of ``response``, a message of ``response_types(api_key, version)``."""
    write = entity_codec(type(response)).write
    out = bytearray(8)
    if has_flexible_header(api_key, version):
        out.append(0)
    write(out, response)
    _LENGTH_AND_CORRELATION_ID.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def has_flexible_header(api_key: int, version: int) -> bool:
    """Whether the response header ends in tagged fields.

    Never for ApiVersions: a client reads that answer before it knows what the broker speaks.
    """
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)


def preload() -> Iterator[None]:
    """Imports and compiles the newest version of every served API, one at each step.

    What a client asks for sooner is imported then. All of them take 0.1 to 0.2 s, which the first
    answer need not wait for.
    """
    for api_key, api_range in SERVED.items():
        _request_reader(api_key, api_range.max_version)
        yield
        entity_codec(response_type(api_key, api_range.max_version))
        yield


# --- Types by API and version -----------------------------------------------------------------


def _module(api_key: int, version: int, kind: str) -> ModuleType:
    key = ApiKey(api_key)
    path = _ELSEWHERE.get((key, version, kind))
    if path is None:
        path = f"kio.schema.{key.name.lower()}.v{version}.{kind}"
    with _importing:
        return importlib.import_module(path)


@functools.cache
def request_type(api_key: int, version: int) -> type[Any]:
    name = ApiKey(api_key).wire_name + "Request"
    found: type[Any] = getattr(_module(api_key, version, "request"), name)
    return found


@functools.cache
def response_type(api_key: int, version: int) -> type[Any]:
    name = ApiKey(api_key).wire_name + "Response"
    found: type[Any] = getattr(_module(api_key, version, "response"), name)
    return found


@functools.cache
def _request_reader(api_key: int, version: int) -> Reader:
    return entity_codec(request_type(api_key, version)).read


# --- Building a response for any version ------------------------------------------------------


class ResponseTypes:
    """Builders of the classes in one response, by class name: ``types.SomeClass(field=...)``."""

    def __init__(self, api_key: int, version: int) -> None:
        self._api_key = api_key
        self.version = version

    def __getattr__(self, class_name: str) -> Callable[..., Any]:
        entity_type = _response_class(self._api_key, self.version, class_name)
        if entity_type is None:
            _newest_class_or_raise(self._api_key, class_name)
            build = _build_nothing
        else:
            build = _builder(self._api_key, entity_type)
        setattr(self, class_name, build)
        return build


@functools.cache
def response_types(api_key: int, version: int) -> ResponseTypes:
    return ResponseTypes(api_key, version)


def _builder(api_key: int, entity_type: type[Any]) -> Callable[..., Any]:
    names = frozenset(field.name for field in fields(entity_type))
    known = set(names)  # grows by names of other versions as they are met

    def build(**values: Any) -> Any:
        if not known.issuperset(values):
            for name in values.keys() - known:
                _check_field_exists(api_key, entity_type.__name__, name)
                known.add(name)
        if not names.issuperset(values):
            values = {name: value for name, value in values.items() if name in names}
        return entity_type(**values)

    return build


def _build_nothing(**_values: Any) -> None:
    """Stands for a class that the version does not have: its field is dropped as well."""


def _response_class(api_key: int, version: int, class_name: str) -> type[Any] | None:
    found = getattr(_module(api_key, version, "response"), class_name, None)
    return found if isinstance(found, type) else None


def _versions_newest_first(api_key: int) -> range:
    api_range = SERVED[api_key]
    return range(api_range.max_version, api_range.min_version - 1, -1)


def _newest_class_or_raise(api_key: int, class_name: str) -> None:
    for version in _versions_newest_first(api_key):
        if _response_class(api_key, version, class_name) is not None:
            return
    raise AttributeError(f"no served version of {ApiKey(api_key).name} has a {class_name}")


def _check_field_exists(api_key: int, class_name: str, field_name: str) -> None:
    for version in _versions_newest_first(api_key):
        entity_type = _response_class(api_key, version, class_name)
        if entity_type is not None and any(f.name == field_name for f in fields(entity_type)):
            return
    raise TypeError(f"no served version of {class_name} has a field {field_name}")
