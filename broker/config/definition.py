"""What a setting is: its name, type, default, range and meaning, and how its text is read.

One ``ConfigKey`` feeds parsing, validation, DescribeConfigs, the dashboard's forms and the docs.
Values travel as text (in files, requests and the metadata store) and are read by ``ConfigKey.parse``
the way Kafka's ConfigDef reads them: trimmed, numbers in Java's notation, lists split at commas.
``render`` is the way back, and gives the normal form that DescribeConfigs shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

#: Kafka's bound for one value, in characters.
LONGEST_VALUE = 32767


class ConfigError(KafkaError):
    """A setting is unknown, or its value cannot be taken. ``reason`` is a sentence for people."""

    def __init__(self, name: str, reason: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        super().__init__(code, reason)
        self.name = name
        self.reason = reason


def check_length(name: str, text: str) -> None:
    """Refuse a text that clients may not store."""
    if len(text) > LONGEST_VALUE:
        raise ConfigError(name, f"The value of {name} is longer than {LONGEST_VALUE} characters")


class ConfigType(IntEnum):
    """Types by their numbers in DescribeConfigs v3 and later."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value came from, by its number in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """Who may change a broker setting while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    """A rule about a parsed value. ``str()`` of it is what the docs show as valid values."""

    def problem(self, value: ConfigValue) -> str | None:
        """Why ``value`` is not allowed, or None."""
        ...


class Range(NamedTuple):
    """A number between two inclusive ends, each of which may be open."""

    minimum: float
    maximum: float | None = None

    def problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, int | float):
            return "a value is required"
        if value < self.minimum:
            return f"must be at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum}"
        return None

    def __str__(self) -> str:
        return (
            f"{self.minimum} or more"
            if self.maximum is None
            else f"{self.minimum} to {self.maximum}"
        )


class OneOf(NamedTuple):
    """One of a few words."""

    words: tuple[str, ...]
    ignore_case: bool = False

    def problem(self, value: ConfigValue) -> str | None:
        if value in self.words:
            return None
        if self.ignore_case and str(value).lower() in {word.lower() for word in self.words}:
            return None
        return f"must be one of {', '.join(self.words)}"

    def __str__(self) -> str:
        return ", ".join(self.words)


class DistinctItems(NamedTuple):
    """A list without empty items, of ``words`` if any are given; ``parse`` drops repeated items."""

    words: tuple[str, ...] = ()
    may_be_empty: bool = True
    may_be_null: bool = False

    def problem(self, value: ConfigValue) -> str | None:
        if value is None:
            return None if self.may_be_null else "a value is required"
        assert isinstance(value, tuple), value
        if not value and not self.may_be_empty:
            return "must not be empty"
        for item in value:
            if not item:
                return "must not have an empty item"
            if self.words and item not in self.words:
                return f"items must be among {', '.join(self.words)}"
        return None

    def __str__(self) -> str:
        return f"any of {', '.join(self.words)}" if self.words else ""


class NonEmpty:
    """A text with at least one character; no value at all is fine."""

    def problem(self, value: ConfigValue) -> str | None:
        return "must not be empty" if value == "" else None

    def __str__(self) -> str:
        return "not empty"


class GzipLevel:
    """zlib's levels; its level 0 (no compression) is not offered, -1 means zlib's default."""

    def problem(self, value: ConfigValue) -> str | None:
        if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
            return None
        return "must be between 1 and 9, or -1"

    def __str__(self) -> str:
        return "1 to 9, or -1"


class ThrottledReplicas:
    """``*``, or pairs of partition and broker such as ``0:1,2:3``."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple), value
        if "".join(value) == "*" or all(_REPLICA.fullmatch(item) for item in value):
            return None
        return "must be * or a list of partition:broker pairs"

    def __str__(self) -> str:
        return "* or partition:broker, ..."


_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


class ConfigKey(NamedTuple):
    """One row of the tables in ``topic_keys`` and ``broker_keys``."""

    name: str
    type: ConfigType
    #: The default as text in its normal form; None is "no value".
    default: str | None
    doc: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    #: Of broker settings; a topic's settings can always be changed.
    scope: Scope = Scope.READ_ONLY
    #: Broker settings that are asked in turn when this one has no value (DescribeConfigs: synonyms).
    synonyms: tuple[str, ...] = ()
    #: False as long as the broker knows the setting only by name.
    has_effect: bool = False
    #: Not shown by DescribeConfigs unless it was set.
    is_internal: bool = False
    #: What Odradek does differently, for the docs.
    note: str = ""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """The typed value of ``text``; raises ConfigError if it is not one."""
        if text is None:
            return None
        trimmed = text.strip(_JAVA_BLANKS)
        value = _PARSERS[self.type](trimmed)
        if isinstance(value, _NotAValue):
            raise ConfigError(self.name, self._refusal(text, _EXPECTED[self.type]))
        if isinstance(self.validator, DistinctItems) and isinstance(value, tuple):
            return tuple(dict.fromkeys(value))
        return value

    def check(self, text: str | None) -> ConfigValue:
        """``parse``, and the validator has nothing against it. Repeated items are dropped."""
        value = self.parse(text)
        problem = None if self.validator is None else self.validator.problem(value)
        if problem is not None:
            raise ConfigError(self.name, self._refusal(text, problem))
        return value

    def _refusal(self, text: str | None, problem: str) -> str:
        shown = "[hidden]" if self.is_sensitive else text
        return f"Invalid value {shown} for configuration {self.name}: {problem}"


class _NotAValue:
    """Parsers return its only instance, so that one place words the error."""


_NOT_A_VALUE = _NotAValue()

#: Java's String.trim takes away everything up to the space; Python's strip has another idea.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
#: Java takes the digits of every script, and so does ``int``.
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_COMMA = re.compile(r"\s*,\s*", re.ASCII)


def _parse_boolean(text: str) -> bool | _NotAValue:
    lowered = text.lower()
    if lowered == "true":
        return True
    return False if lowered == "false" else _NOT_A_VALUE


def _parse_integer(text: str, bits: int) -> int | _NotAValue:
    # The length is bounded before int() sees it: its cost grows with the square of the digits.
    if len(text) > 40 or not _INTEGER.fullmatch(text):
        return _NOT_A_VALUE
    value = int(text)
    end = 1 << (bits - 1)
    return value if -end <= value < end else _NOT_A_VALUE


def _parse_double(text: str) -> float | _NotAValue:
    if len(text) > 400 or not _DOUBLE.fullmatch(text):
        return _NOT_A_VALUE
    return float(text.rstrip("fFdD") if text[-1] not in "yN" else text)


def split_items(text: str) -> tuple[str, ...]:
    """The items of a list as they were written, repeated ones included."""
    return _parse_list(text.strip(_JAVA_BLANKS))


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_PARSERS: dict[ConfigType, Callable[[str], ConfigValue | _NotAValue]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: lambda text: _parse_integer(text, 32),
    ConfigType.SHORT: lambda text: _parse_integer(text, 16),
    ConfigType.LONG: lambda text: _parse_integer(text, 64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}
_EXPECTED = {
    ConfigType.BOOLEAN: "expected true or false",
    ConfigType.INT: "expected a whole number of 32 bits",
    ConfigType.SHORT: "expected a whole number of 16 bits",
    ConfigType.LONG: "expected a whole number of 64 bits",
    ConfigType.DOUBLE: "expected a number",
}


def render(value: ConfigValue) -> str | None:
    """A parsed value as text, in the form in which Kafka shows it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _render_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _render_double(value: float) -> str:
    """Java's notation: ``1.0E-4`` where Python writes ``0.0001``, ``NaN``, ``Infinity``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = _scientific(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> str:
    """Shortest scientific notation that reads back as ``value``."""
    for digits in range(17):
        text = f"{value:.{digits}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"
