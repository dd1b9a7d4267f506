"""Hypothesis strategies for kio messages of any API and version."""

from __future__ import annotations

import functools
import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from broker.protocol.api_versions import SERVED
from broker.protocol.codec import field_type


def versions(api_key: int) -> range:
    """The served versions of an API."""
    return range(SERVED[api_key].min_version, SERVED[api_key].max_version + 1)


def kio_bytes(message: Any) -> bytes:
    """The message as kio encodes it."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_TEXT = st.text(max_size=12)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=300),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    # kio rounds durations through floats of seconds: keep to what survives that.
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda n: timedelta(milliseconds=n)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda n: timedelta(milliseconds=n)),
    "datetime_i64": st.integers(0, 2**31).map(lambda n: datetime.fromtimestamp(n, UTC)),
} | {name: st.integers(-(2**bits), 2**bits - 1) for name, bits in _INTEGERS.items()}


@functools.cache
def messages(entity_type: type[Any]) -> st.SearchStrategy[Any]:
    """Any message of the type; arrays have up to three elements."""
    return st.builds(
        entity_type, **{field.name: _field_strategy(field) for field in fields(entity_type)}
    )


def _field_strategy(field: Any) -> st.SearchStrategy[Any]:
    kafka_type, nested, is_array, is_nullable = field_type(field)
    item = messages(nested) if nested else _PRIMITIVES[kafka_type or ""]
    strategy = st.lists(item, max_size=3).map(tuple) if is_array else item
    # The absence of a tagged field is its default; null itself has no encoding there.
    if is_nullable and "tag" not in field.metadata:
        return st.none() | strategy
    return st.just(field.default) | strategy if "tag" in field.metadata else strategy
