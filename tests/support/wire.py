"""Speak Kafka's protocol by hand: one blocking connection, plain values in, plain values out.

The layouts come from the `kio` schema classes, the bytes from the two small functions here, so a
fault in the broker's codecs (or in kio's) does not hide itself. Names are kio's field names, but
every value is plain: times are milliseconds, error codes are ints, absent topic ids are the zero
UUID.

    with Wire(("127.0.0.1", port)) as wire:
        answer = wire.request("metadata", 12, topics=None)
        print(answer.brokers[0].node_id)

Fields that are left out get the schema's default, else zero; fields that the version lacks but
another version has are dropped, so that one request can be sent at several versions.
"""

import dataclasses
import functools
import socket
import struct
import types
import typing
import uuid
from typing import Any, Self

from kio import index
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from broker.protocol.supplements import delete_groups_v3, txn_offset_commit_v6

ZERO_UUID = uuid.UUID(int=0)
API_KEYS: dict[str, int] = {name: key for key, name in api_key_map.items()}


def load_entity_schema(name: str, version: int, kind: EntityType) -> type:
    """The layout of a message: kio's, or that of the versions which kio does not have."""
    if (name, version) == ("delete_groups", 3):
        if kind is EntityType.response:
            return delete_groups_v3.DeleteGroupsResponse
        version = 2  # the same layout
    if (name, version) == ("txn_offset_commit", 6):
        if kind is EntityType.response:
            return txn_offset_commit_v6.TxnOffsetCommitResponse
        return txn_offset_commit_v6.TxnOffsetCommitRequest
    return index.load_entity_schema(name, version, kind)


_FIXED = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint8": struct.Struct(">B"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "uint64": struct.Struct(">Q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}


class WireError(Exception):
    """The peer sent something that is no answer to what was asked."""


class ConnectionClosed(WireError):
    """The peer closed the connection where an answer was due."""


class Struct(types.SimpleNamespace):
    """A decoded message, or a part of one."""

    def as_dict(self) -> dict[str, Any]:
        return {
            name: [item.as_dict() if isinstance(item, Struct) else item for item in value]
            if isinstance(value, list)
            else value.as_dict()
            if isinstance(value, Struct)
            else value
            for name, value in vars(self).items()
        }


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str | None  # primitive kind, or None for a nested entity
    entity: type | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


def _plain(value: Any) -> Any:
    """A default of kio's as a plain value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "total_seconds"):
        return round(value.total_seconds() * 1000)
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value


@functools.cache
def _layout(entity: type) -> tuple[tuple[_Field, ...], bool]:
    hints = typing.get_type_hints(entity)
    fields = []
    for field in dataclasses.fields(entity):
        hint = hints[field.name]
        options = [hint]
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            options = list(typing.get_args(hint))
        is_nullable = type(None) in options
        (inner,) = [option for option in options if option is not type(None)]
        is_array = typing.get_origin(inner) is tuple
        if is_array:
            inner = typing.get_args(inner)[0]
        kind = field.metadata.get("kafka_type")
        if kind == "uuid":
            is_nullable = is_array and is_nullable
        nested = inner if kind is None else None
        default: Any
        if field.default is not dataclasses.MISSING:
            default = _plain(field.default)
        elif is_array:
            default = None if is_nullable else []
        elif kind in ("string",):
            default = None if is_nullable else ""
        elif kind in ("bytes", "records"):
            default = None if is_nullable else b""
        elif nested is not None:
            default = None if is_nullable else {}
        else:
            default = 0
        if kind == "uuid" and default in (0, None) and not is_array:
            default = ZERO_UUID
        fields.append(
            _Field(
                field.name, kind, nested, is_array, is_nullable, field.metadata.get("tag"), default
            )
        )
    return tuple(fields), bool(entity.__flexible__)  # type: ignore[attr-defined]


@functools.cache
def _names_in_any_version(module_name: str, entity_name: str) -> frozenset[str]:
    names: set[str] = set()
    for by_type in schema_name_map[module_name].values():
        for kind in by_type:
            if kind not in (EntityType.request, EntityType.response):
                continue
            root = load_entity_schema(module_name, _version_of(by_type[kind]), kind)
            module = __import__(root.__module__, fromlist=["x"])
            found = getattr(module, entity_name, None)
            if found is not None:
                names.update(field.name for field in dataclasses.fields(found))
    return frozenset(names)


def _version_of(path: str) -> int:
    return int(path.split(".v")[1].split(".")[0])


# ---------------------------------------------------------------------------------- encoding


def encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_primitive(kind: str, flexible: bool, value: Any, out: bytearray) -> None:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        out += fixed.pack(value)
    elif kind == "uuid":
        out += (value or ZERO_UUID).bytes
    else:
        data = value.encode() if isinstance(value, str) else value
        if flexible:
            out += encode_uvarint(0 if data is None else len(data) + 1)
        elif kind == "string":
            out += struct.pack(">h", -1 if data is None else len(data))
        else:
            out += struct.pack(">i", -1 if data is None else len(data))
        if data is not None:
            out += data


def _encode_field(field: _Field, flexible: bool, value: Any, out: bytearray) -> None:
    if field.is_array:
        if flexible:
            out += encode_uvarint(0 if value is None else len(value) + 1)
        else:
            out += struct.pack(">i", -1 if value is None else len(value))
        items = value or []
    elif field.entity is not None and field.is_nullable and field.tag is None:
        out += b"\xff" if value is None else b"\x01"
        items = [] if value is None else [value]
    else:
        items = [value]
    for item in items:
        if field.entity is not None:
            encode_entity(field.entity, item, out)
        else:
            assert field.kind is not None
            _encode_primitive(field.kind, flexible, item, out)


def encode_entity(entity: type, values: Any, out: bytearray) -> None:
    if isinstance(values, Struct):
        values = vars(values)
    fields, flexible = _layout(entity)
    given = dict(values)
    tagged: list[tuple[int, bytes]] = []
    for field in fields:
        value = given.pop(field.name, field.default)
        if field.tag is None:
            _encode_field(field, flexible, value, out)
        elif value != field.default:
            part = bytearray()
            _encode_field(field, flexible, value, part)
            tagged.append((field.tag, bytes(part)))
    if given:
        name = entity.__module__.split(".")[2]
        unknown = set(given) - _names_in_any_version(name, entity.__name__)
        if unknown:
            raise TypeError(f"{entity.__name__} has no {sorted(unknown)}")
    if flexible:
        out += encode_uvarint(len(tagged))
        for tag, part in sorted(tagged):
            out += encode_uvarint(tag) + encode_uvarint(len(part)) + part


# ---------------------------------------------------------------------------------- decoding


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise WireError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def uvarint(self) -> int:
        shift = value = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def fixed(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]


def _decode_primitive(reader: _Reader, kind: str, flexible: bool) -> Any:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return reader.fixed(fixed)
    if kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if flexible:
        size = reader.uvarint() - 1
    elif kind == "string":
        size = reader.fixed(_FIXED["int16"])
    else:
        size = reader.fixed(_FIXED["int32"])
    if size < 0:
        return None
    data = reader.take(size)
    return data.decode() if kind == "string" else data


def _decode_field(reader: _Reader, field: _Field, flexible: bool) -> Any:
    def one() -> Any:
        if field.entity is not None:
            return _decode_entity(reader, field.entity)
        assert field.kind is not None
        return _decode_primitive(reader, field.kind, flexible)

    if field.is_array:
        count = reader.uvarint() - 1 if flexible else reader.fixed(_FIXED["int32"])
        return None if count < 0 else [one() for _ in range(count)]
    if field.entity is not None and field.is_nullable and field.tag is None:
        return None if reader.fixed(_FIXED["int8"]) < 0 else one()
    return one()


def _decode_entity(reader: _Reader, entity: type) -> Struct:
    fields, flexible = _layout(entity)
    values: dict[str, Any] = {}
    by_tag = {}
    for field in fields:
        if field.tag is None:
            values[field.name] = _decode_field(reader, field, flexible)
        else:
            by_tag[field.tag] = field
            default = field.default
            values[field.name] = Struct(**default) if isinstance(default, dict) else default
    if flexible:
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            part = _Reader(reader.take(size))
            if tag not in by_tag:
                raise WireError(f"{entity.__name__} has no tagged field {tag}")
            values[by_tag[tag].name] = _decode_field(part, by_tag[tag], flexible)
            if part.position != len(part.data):
                raise WireError(f"{entity.__name__} tag {tag} is longer than its field")
    return Struct(**values)


def decode_entity(entity: type, data: bytes) -> Struct:
    """Decode all of `data`; bytes left over are an error."""
    reader = _Reader(data)
    value = _decode_entity(reader, entity)
    if reader.position != len(data):
        raise WireError(f"{len(data) - reader.position} bytes left behind {entity.__name__}")
    return value


# -------------------------------------------------------------------------------- connection


def api_key(api: str | int) -> int:
    return api if isinstance(api, int) else API_KEYS[api]


def is_flexible(api: str | int, version: int) -> bool:
    schema = load_entity_schema(api_key_map[api_key(api)], version, EntityType.request)
    return bool(schema.__flexible__)


def encode_header(
    key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> bytes:
    name = None if client_id is None else client_id.encode()
    head = struct.pack(">hhi", key, version, correlation_id)
    head += struct.pack(">h", -1 if name is None else len(name)) + (name or b"")
    return head + b"\0" if flexible else head


def encode_request(
    api: str | int,
    version: int,
    correlation_id: int,
    client_id: str | None = "judge",
    **fields: Any,
) -> bytes:
    """A whole frame with its length prefix."""
    key = api_key(api)
    schema = load_entity_schema(api_key_map[key], version, EntityType.request)
    out = bytearray(
        encode_header(key, version, correlation_id, client_id, flexible=bool(schema.__flexible__))
    )
    encode_entity(schema, fields, out)
    return struct.pack(">i", len(out)) + bytes(out)


def decode_response(api: str | int, version: int, body: bytes) -> tuple[int, Struct]:
    """(correlation id, message) of a frame without its length prefix."""
    key = api_key(api)
    schema = load_entity_schema(api_key_map[key], version, EntityType.response)
    (correlation_id,) = struct.unpack_from(">i", body)
    start = 4
    if schema.__flexible__ and key != API_KEYS["api_versions"]:
        if body[4] != 0:
            raise WireError(f"response header of {api} v{version} carries tags: {body[4]}")
        start = 5
    return correlation_id, decode_entity(schema, body[start:])


class Wire:
    """One connection. `send`/`receive` pipeline; `request` does one after the other."""

    def __init__(
        self, address: tuple[str, int], *, timeout: float = 20, client_id: str | None = "judge"
    ) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._next_correlation_id = 1
        self._expected: list[tuple[int, int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        if not 0 <= size <= 256 << 20:
            raise WireError(f"an answer of {size} bytes")
        return self._read(size)

    def send(self, api: str | int, version: int, /, *, answered: bool = True, **fields: Any) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        frame = encode_request(api, version, correlation_id, self.client_id, **fields)
        if answered:
            self._expected.append((correlation_id, api_key(api), version))
        self.socket.sendall(frame)
        return correlation_id

    def receive(self) -> Struct:
        """The next answer, which must be the one to the oldest request without one."""
        correlation_id, key, version = self._expected[0]
        body = self.receive_frame()
        answered, message = decode_response(key, version, body)
        if answered != correlation_id:
            raise WireError(f"answer {answered} where {correlation_id} was due")
        self._expected.pop(0)
        return message

    def request(self, api: str | int, version: int, /, **fields: Any) -> Struct:
        self.send(api, version, **fields)
        return self.receive()

    def is_closed_by_peer(self, timeout: float = 10) -> bool:
        """Whether the peer closes within `timeout`; whatever it sends before is thrown away."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True
        return True


def answers(address: tuple[str, int], *, timeout: float = 2) -> bool:
    """Whether a Kafka broker there knows at least one live broker (itself)."""
    try:
        with Wire(address, timeout=timeout) as wire:
            return bool(wire.request("metadata", 1, topics=[]).brokers)
    except (OSError, WireError):
        return False


def versions(wire: Wire) -> dict[int, tuple[int, int]]:
    """Advertised ranges by API key."""
    answer = wire.request(
        "api_versions", 3, client_software_name="judge", client_software_version="1"
    )
    assert answer.error_code == 0, answer
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
