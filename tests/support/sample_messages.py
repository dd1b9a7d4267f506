"""Messages of any API and version, filled field by field with small distinct values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.protocol.codec import field_type

#: Fields that a number from the counter would make invalid.
FIXED_VALUES: dict[str, Any] = {
    "acks": 1,
    "records": b"",
    "resource_type": 2,
    "config_operation": 0,
    "isolation_level": 1,
    "transactional_id": None,
    "node_id": 1,
    "port": 9092,
}


def sample(entity_type: type[Any], counter: Iterator[int] | None = None) -> Any:
    """One message in which every array has two elements."""
    counter = counter if counter is not None else itertools.count(1)
    values = {}
    for field in fields(entity_type):
        kafka_type, nested, is_array, is_nullable = field_type(field)
        fixed = FIXED_VALUES.get(field.name)
        if fixed is not None or (field.name in FIXED_VALUES and is_nullable):
            values[field.name] = fixed
            continue
        count = 2 if is_array else 1
        items = [
            sample(nested, counter) if nested else _sample_primitive(kafka_type, next(counter))
            for _ in range(count)
        ]
        values[field.name] = tuple(items) if is_array else items[0]
    return entity_type(**values)


def _sample_primitive(kafka_type: str | None, number: int) -> Any:
    match kafka_type:
        case "string":
            return f"name-{number}"
        case "bytes" | "records":
            return f"bytes-{number}".encode()
        case "bool":
            return number % 2 == 0
        case "uuid":
            return UUID(int=number)
        case "error_code":
            return ErrorCode(number % 100)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=number)
        case "datetime_i64":
            return datetime.fromtimestamp(number, UTC)
        case "int8":
            return number % 100
        case _:
            return number
