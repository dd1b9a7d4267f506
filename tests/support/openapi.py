"""An OpenAPI document as a source of requests, and as a judge of answers.

As much of JSON Schema as our document uses; a keyword that is not known here fails, so that the judge
never passes over what it does not understand.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

SAID = frozenset(
    {"title", "description", "default", "format"}  # for people: they bind nobody
)
KNOWN = SAID | {
    "$ref", "anyOf", "enum", "type", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "items", "prefixItems", "minItems", "maxItems", "properties", "required",
    "additionalProperties", "maxProperties", "minProperties",
}  # fmt: skip
MAX_ITEMS = 3
"""Of a made list or mapping: enough to tell one from several."""
SAFE_INT = 2**63 - 1
JUNK = st.sampled_from(
    [
        None, True, "", "x", " ", "\0", "a\nb", "\ud800", "\N{PILE OF POO}", "%00", "' OR 1=1 --",
        "x" * 5000, "y" * 20_000, -1, 0, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, math.inf, [],
        [None], {}, {"": None}, [[[[]]]],
    ]
)  # fmt: skip
"""Values that are no answer to most questions."""
ODD_PARTS = [
    "a/b", "../users", "..", "a\nb", "\n", "1\n", "\0", "%", "", " ", "-1", "x" * 5000, "y" * 20_000,
    str(2**63), str(10**30), "\N{PILE OF POO}", "\N{ARABIC-INDIC DIGIT ONE}",
]  # fmt: skip
"""Of addresses."""
NO_JSON = st.sampled_from(
    [b"", b"{", b"\xff", b"nul", b"[" * 100_000, b'{"a":' * 5_000, b"NaN", b"null", b"[]", b'""']
)


@dataclass(frozen=True, eq=False)
class Operation:
    method: str
    path: str
    told: Mapping[str, Any]
    document: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    def parameters(self, where: str) -> list[Mapping[str, Any]]:
        return [one for one in self.told.get("parameters", []) if one["in"] == where]

    @property
    def body(self) -> Mapping[str, Any] | None:
        asked = self.told.get("requestBody")
        return None if asked is None else asked["content"]["application/json"]["schema"]

    def content(self, status: int) -> Mapping[str, Any] | None:
        """What an answer of this status holds, by type; None when there is none of this status."""
        found = self.told["responses"].get(str(status))
        return None if found is None else self.resolve(found).get("content", {})

    def resolve(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in part:
            found: Any = self.document
            for name in part["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            part = found
        return part


def operations(document: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(method.upper(), path, told, document)
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]


# -- requests


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """With its query, as it goes out."""
    body: bytes | None


class Requests:
    """Requests of an operation: some that make sense, some that are nearly right, some that are junk.

    ``words`` are texts that mean something here, and ``bounds`` the largest number to ask for, by the
    name of the field, where the cluster would take more than a test should.
    """

    def __init__(self, words: list[str], bounds: Mapping[str, int]) -> None:
        self.words = st.sampled_from(words)
        self.bounds = bounds

    def of(self, operation: Operation) -> st.SearchStrategy[Request]:
        return st.builds(
            lambda path, query, body: Request(operation.method, path + query, body),
            self._path(operation),
            self._query(operation),
            st.none() if operation.body is None else self._body(operation, operation.body),
        )

    def _path(self, operation: Operation) -> st.SearchStrategy[str]:
        odd = st.sampled_from(ODD_PARTS)
        parts = {
            one["name"]: (
                st.one_of(st.sampled_from(["1", "2"]), st.integers(0, SAFE_INT).map(str), odd)
                if operation.resolve(one["schema"]).get("type") == "integer"
                else st.one_of(self._values(operation, one["schema"]).map(str), odd)
            )
            for one in operation.parameters("path")
        }
        return st.fixed_dictionaries(parts).map(
            lambda given: re.sub(r"\{(\w+)\}", lambda m: _quoted(given[m[1]]), operation.path)
        )

    def _query(self, operation: Operation) -> st.SearchStrategy[str]:
        given: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for one in operation.parameters("query"):
            values = self._values(operation, one["schema"])
            listed = st.one_of(values, values, JUNK).map(
                lambda value: value if isinstance(value, list) else [value]
            )
            given[one["required"]][one["name"]] = listed
        if not given[True] and not given[False]:
            return st.just("")
        nearly = st.fixed_dictionaries({}, optional={**given[True], **given[False]})
        right = st.fixed_dictionaries(given[True], optional=given[False])
        return st.one_of(right, right, nearly).map(_written)

    def _body(self, operation: Operation, schema: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
        right = self._values(operation, schema)
        fields = list(operation.resolve(schema).get("properties", {})) or ["x"]
        nearly = st.tuples(right, st.sampled_from(fields), JUNK).map(
            lambda drawn: {**drawn[0], drawn[1]: drawn[2]}
        )
        without = st.tuples(right, st.sampled_from(fields)).map(
            lambda drawn: {name: value for name, value in drawn[0].items() if name != drawn[1]}
        )
        written = st.one_of(right, right, nearly, nearly, without, JUNK).map(_json)
        return st.one_of(written, written, written, NO_JSON)

    def _values(
        self, operation: Operation, schema: Mapping[str, Any], name: str = ""
    ) -> st.SearchStrategy[Any]:
        schema = operation.resolve(schema)
        _known(schema)
        if "anyOf" in schema:
            return st.one_of([self._values(operation, one, name) for one in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        match schema.get("type"):
            case "null":
                return st.none()
            case "boolean":
                return st.booleans()
            case "integer":
                most = min(schema.get("maximum", SAFE_INT), self.bounds.get(name, SAFE_INT))
                least = schema.get("minimum", -SAFE_INT)
                return st.one_of(
                    st.integers(max(least, 0), max(min(most, 9), least)), st.integers(least, most)
                )
            case "number":
                return st.floats(allow_nan=False, allow_infinity=False)
            case "string":
                return self._texts(schema)
            case "array":
                return self._lists(operation, schema)
            case "object":
                return self._objects(operation, schema)
        return JUNK

    def _texts(self, schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
        if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True)
        least, most = schema.get("minLength", 0), schema.get("maxLength", 50)
        made = st.text(min_size=least, max_size=max(least, min(most, 50)))
        return st.one_of(self.words, self.words, made)

    def _lists(
        self, operation: Operation, schema: Mapping[str, Any]
    ) -> st.SearchStrategy[list[Any]]:
        if "prefixItems" in schema:
            parts = [self._values(operation, one) for one in schema["prefixItems"]]
            return st.tuples(*parts).map(list)
        least = schema.get("minItems", 0)
        return st.lists(
            self._values(operation, schema["items"]), min_size=least, max_size=least + MAX_ITEMS
        )

    def _objects(
        self, operation: Operation, schema: Mapping[str, Any]
    ) -> st.SearchStrategy[dict[str, Any]]:
        if "properties" not in schema:
            of = schema.get("additionalProperties", True)
            values = JUNK if of is True else self._values(operation, of)
            return st.dictionaries(self.words, values, max_size=MAX_ITEMS)
        parts = {
            name: self._values(operation, one, name) for name, one in schema["properties"].items()
        }
        required = schema.get("required", [])
        return st.fixed_dictionaries(
            {name: parts[name] for name in required},
            optional={name: one for name, one in parts.items() if name not in required},
        )


def _quoted(text: Any) -> str:
    """Dots too: a client would take ``..`` for a step up."""
    return quote(str(text), safe="", errors="replace").replace(".", "%2E")


def _written(query: Mapping[str, list[Any]]) -> str:
    pairs = [
        f"{quote(name)}={_quoted(_plain(value))}"
        for name, values in query.items()
        for value in values
    ]
    return "?" + "&".join(pairs) if pairs else ""


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(value: Any) -> bytes:
    """With what Python alone writes, such as Infinity, and with halves of surrogate pairs."""
    return json.dumps(value).encode()


# -- answers


def faults(
    operation: Operation, schema: Mapping[str, Any], value: Any, where: str = "answer"
) -> list[str]:
    """Where a value is not what the schema says."""
    schema = operation.resolve(schema)
    _known(schema)
    if "anyOf" in schema:
        tried = [faults(operation, one, value, where) for one in schema["anyOf"]]
        return [] if any(not found for found in tried) else tried[0]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    kind = schema.get("type")
    if kind is not None and not _is(kind, value):
        return [f"{where}: {value!r} is no {kind}"]
    found = [] if _within(schema, value) else [f"{where}: {value!r} is out of bounds"]
    if isinstance(value, list):
        parts = schema.get("prefixItems", [schema.get("items", {})] * len(value))
        for number, (part, one) in enumerate(zip(parts, value, strict=True)):
            found += faults(operation, part, one, f"{where}[{number}]")
    if isinstance(value, dict):
        named = schema.get("properties", {})
        found += [f"{where}: no {name}" for name in schema.get("required", []) if name not in value]
        others = schema.get("additionalProperties", not named)
        for name, one in value.items():
            if name in named:
                found += faults(operation, named[name], one, f"{where}.{name}")
            elif others is False:
                found.append(f"{where}: {name} is not documented")
            elif others is not True:
                found += faults(operation, others, one, f"{where}.{name}")
    return found


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    types: dict[str, Any] = {
        "null": type(None),
        "integer": int,
        "number": (int, float),
        "string": str,
        "array": list,
        "object": dict,
        "boolean": bool,
    }
    return isinstance(value, types[kind])


def _within(schema: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, str):
        is_long = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
        return is_long and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, list):
        return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf))
    if isinstance(value, int | float):
        return bool(schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf))
    return True


def _known(schema: Mapping[str, Any]) -> None:
    unknown = schema.keys() - KNOWN
    assert not unknown, f"tests/support/openapi.py does not know {unknown}"
