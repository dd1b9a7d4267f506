"""Filter expressions that people type: CEL, evaluated by a compiled library, never by Python.

A record is seen as ``key`` and ``value`` (text, null where there is none), ``json`` (the value
parsed, null when it is not JSON), ``headers`` (a map, the last of equal keys) and ``header_list``
(all of them, in order), ``topic``, ``partition``, ``offset``, ``timestamp`` (milliseconds) and
``size`` (bytes of key and value).

Bounds, so that one record takes milliseconds whatever it holds: ``matches`` is linear in the text;
an expression has MAX_LENGTH characters and at most MAX_DEPTH macros (``all``, ``exists``, ``map`` …)
inside each other; a value over MAX_TEXT_BYTES, or one with so many elements that its macros would
exceed MAX_COST, is refused. Whole numbers of JSON are exact from -2^63 to 2^64-1; larger ones are
doubles. What cannot be evaluated for a record (a missing field, a refusal) does not match it and
raises EvaluationError; callers count these.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

# The library imports its own command line, and that three libraries for terminals: 15 MB and half a
# second in each process that filters.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel  # noqa: E402

from dashboard.cluster import Record  # noqa: E402

MAX_LENGTH: Final = 2_000
MAX_DEPTH: Final = 2
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
STEP_COST: Final = 1_000
"""A turn of a macro takes about as long as searching so many bytes."""
MAX_COST: Final = 1_000_000 * STEP_COST
MAX_REASON: Final = 200

VARIABLES: Final = (
    "key", "value", "json", "headers", "header_list", "topic", "partition", "offset", "timestamp",
    "size",
)  # fmt: skip
FUNCTIONS: Final = frozenset({
    "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string",
    "bytes", "bool", "duration", "timestamp", "type", "dyn", "has", "getFullYear", "getMonth",
    "getDayOfYear", "getDayOfMonth", "getDayOfWeek", "getDate", "getHours", "getMinutes",
    "getSeconds", "getMilliseconds",
})  # fmt: skip

_SEARCHING: Final = frozenset(
    {"contains", "startsWith", "endsWith", "matches", "string", "bytes", "_+_", "size"}
)

_STRING = re.compile(
    r"""r?(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
)
_MACRO = re.compile(
    r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,(?:\s*([A-Za-z_]\w*)\s*,)?"
)
_PATTERN = re.compile(rf"\bmatches\s*\(\s*({_STRING.pattern})\s*\)", re.VERBOSE)
_SYNTAX = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)")
_NOT_APPLICABLE = re.compile(r"Undefined variable or function: '(\w+)'")
_WORD = re.compile(r"[A-Za-z_]\w*")


class ExpressionError(ValueError):
    """What is wrong with an expression, in words for the person who typed it.

    ``line`` and ``column`` count from 1; None where no place can be named.
    """

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        self.reason, self.line, self.column = reason, line, column
        where = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(where + reason)


class EvaluationError(ExpressionError):
    """An expression that is fine by itself and cannot be evaluated for this record."""


class Expression:
    """A compiled expression; cheap to keep, safe to share between threads."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"an expression may have {MAX_LENGTH} characters")
        if not text.strip():
            raise ExpressionError("the expression is empty")
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise _syntax_error(str(error)) from None
        bare = _without_strings(text)
        self.text = text
        self._depth = _macro_depth(bare)
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"at most {MAX_DEPTH} macros (all, exists, map …) in each other")
        self._used = frozenset(self._check_names(bare))
        self._searches = bool(_SEARCHING & set(self._program.functions()))
        _check_patterns(text)

    def matches(self, record: Record) -> bool:
        """Raises EvaluationError."""
        self._check_bounds(record)
        try:
            found = self._program.execute({name: _READERS[name](record) for name in self._used})
        except KeyError as error:
            raise EvaluationError(f"no such field: {error.args[0]}"[:MAX_REASON]) from None
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            raise EvaluationError(_first_sentence(str(error))) from None
        if not isinstance(found, bool):
            raise EvaluationError(
                f"an expression has to be true or false, not {found!r}"[:MAX_REASON]
            )
        return found

    def _check_names(self, bare: str) -> list[str]:
        bound = {name for found in _MACRO.findall(bare) for name in found if name}
        used = [name for name in self._program.variables() if name in VARIABLES]
        for name in self._program.variables():
            if name not in VARIABLES and name not in bound:
                known = ", ".join(VARIABLES)
                raise _at(bare, name, f"unknown name {name}; known are {known}")
        for name in self._program.functions():
            if name[0].isalpha() and name not in FUNCTIONS:
                raise _at(bare, name, f"unknown function {name}")
        return used

    def _check_bounds(self, record: Record) -> None:
        value = record.value or b""
        if len(value) > MAX_TEXT_BYTES and self._used & {"value", "json"}:
            raise EvaluationError(
                f"the value has over {MAX_TEXT_BYTES >> 20} MiB: too large for an expression"
            )
        if self._depth:
            # Every element of a JSON list or object but the first has a comma before it.
            elements = value.count(b",") + len(record.headers) + len(self.text)
            searched = len(value) + len(record.key or b"") if self._searches else 0
            if elements**self._depth * (STEP_COST + searched) > MAX_COST:
                raise EvaluationError("the value has too many elements for this expression")


def _without_strings(text: str) -> str:
    """The text with string literals blanked, every place in it kept."""
    return _STRING.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def _macro_depth(bare: str) -> int:
    """How deep macros lie in each other's arguments."""
    starts = {
        found.end(0)
        for found in re.finditer(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(", bare)
    }
    open_parentheses: list[bool] = []
    deepest = 0
    for place, character in enumerate(bare, 1):
        if character == "(":
            open_parentheses.append(place in starts)
            deepest = max(deepest, sum(open_parentheses))
        elif character == ")" and open_parentheses:
            open_parentheses.pop()
    return deepest


def _check_patterns(text: str) -> None:
    """A regular expression that is written out is tried now, not at the first record."""
    for found in _PATTERN.finditer(text):
        try:
            cel.compile(f"''.matches({found.group(1)})").execute({})
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            reason = str(error).partition("error: ")[2].rpartition(" Check function")[0]
            line, column = _place(text, found.start(1))
            words = " ".join(reason.split())[:MAX_REASON] or "not a regular expression"
            raise ExpressionError(words, line, column) from None


def _syntax_error(text: str) -> ExpressionError:
    found = _SYNTAX.search(text)
    if found is None:
        return ExpressionError(_first_sentence(text))
    reason = re.sub(r" expecting \{.*", "", found.group(3))
    reason = reason.replace("mismatched input '<EOF>'", "the expression ends too early")
    return ExpressionError(reason[:MAX_REASON], int(found.group(1)), int(found.group(2)))


def _at(bare: str, name: str, reason: str) -> ExpressionError:
    for found in _WORD.finditer(bare):
        if found.group() == name:
            return ExpressionError(reason, *_place(bare, found.start()))
    return ExpressionError(reason)


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _first_sentence(text: str) -> str:
    line = text.partition("\n")[0]
    if found := _NOT_APPLICABLE.match(line):
        return f"{found.group(1)} does not apply to what it is used on (null, perhaps)"
    return line.partition(". ")[0].rstrip(". ")[:MAX_REASON] or "cannot be evaluated"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _json(record: Record) -> Any:
    if record.value is None:
        return None
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError):
        return None


_READERS: Final[dict[str, Callable[[Record], Any]]] = {
    "key": lambda record: _text(record.key),
    "value": lambda record: _text(record.value),
    "json": _json,
    "headers": lambda record: {name: _text(value) for name, value in record.headers},
    "header_list": lambda record: [[name, _text(value)] for name, value in record.headers],
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp_ms,
    "size": lambda record: len(record.key or b"") + len(record.value or b""),
}
