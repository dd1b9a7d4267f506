"""What a report is: what it asks for, how it is drawn, and the function that computes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Kind = Literal["text", "integer", "number", "choice", "field", "window", "percentiles"]
Input = Literal["records", "samples"]
_WINDOW: Final = re.compile(r"(\d{1,6})(s|m|h|d)")
_WINDOW_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_TEXT: Final = 500
MAX_PERCENTILES: Final = 10


class ReportError(Exception):
    """It cannot be computed as asked; the message is for the person who asked."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """``field``: a name in the records' data such as ``user.id``, or ``@key``, ``@topic``,
    ``@partition``; ``window``: a length of time such as 1m; ``percentiles``: numbers with commas."""

    name: str
    label: str
    kind: Kind = "text"
    default: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    help_text: str = ""

    def parse(self, text: str) -> Any:
        """The value of what somebody wrote; None when it is left out. Raises ValueError."""
        text = text.strip()
        if not text:
            if self.is_required:
                raise ValueError(f"{self.label}: is needed")
            return None
        if len(text) > MAX_TEXT:
            raise ValueError(f"{self.label}: is longer than {MAX_TEXT} characters")
        try:
            value = _PARSERS[self.kind](text)
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.label}: one of {', '.join(self.choices)}")
        self._check_bounds(value)
        return value

    def _check_bounds(self, value: Any) -> None:
        numbers = value if isinstance(value, list) else [value]
        for number in numbers:
            if not isinstance(number, int | float):
                continue
            if self.minimum is not None and number < self.minimum:
                raise ValueError(f"{self.label}: at least {self.minimum:g}")
            if self.maximum is not None and number > self.maximum:
                raise ValueError(f"{self.label}: at most {self.maximum:g}")


def parse_window_s(text: str) -> int:
    """``30s``, ``1m``, ``1h``, ``1d``, in seconds."""
    found = _WINDOW.fullmatch(text)
    if found is None or not int(found[1]):
        raise ValueError(f"{text!r} is not a length of time such as 30s, 1m, 1h or 1d")
    return int(found[1]) * _WINDOW_S[found[2]]


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{text!r} is not a number")
    return value


def _percentiles(text: str) -> list[float]:
    values = sorted({_number(part) for part in text.split(",") if part.strip()})
    if not 0 < len(values) <= MAX_PERCENTILES:
        raise ValueError(f"one to {MAX_PERCENTILES} numbers, such as 50, 95, 99")
    return values


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "choice": str,
    "field": str,
    "integer": _integer,
    "number": _number,
    "window": parse_window_s,
    "percentiles": _percentiles,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """``line`` over the time column ``x``, ``bar`` over the names in ``x``. ``y``: columns; one line
    or bar for each, or for each value of ``series``. A ``y`` that ends in * is a prefix."""

    kind: Literal["line", "bar", "none"] = "none"
    x: str = ""
    y: tuple[str, ...] = ()
    series: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """``build`` takes a ``spark_tasks.context.Context`` and returns a DataFrame.

    ``needs_fields``: it looks into values, so a format has to be chosen. ``reads_whole_log``: its
    figures are about the log as it is, from its first record to its last.
    """

    name: str
    title: str
    description: str
    build: Callable[[Any], Any]
    parameters: tuple[Parameter, ...] = ()
    chart: Chart = field(default_factory=Chart)
    input: Input = "records"
    needs_fields: bool = True
    reads_whole_log: bool = False
    samples: tuple[str, ...] = ()
    """Prefixes of the series that a report on samples reads."""

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """All parameters as values. Raises ValueError that names the first that is wrong."""
        known = {parameter.name for parameter in self.parameters}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"{self.name} has no parameter {unknown[0]!r}")
        return {
            parameter.name: parameter.parse(given.get(parameter.name, parameter.default))
            for parameter in self.parameters
        }

    def describe(self) -> dict[str, Any]:
        """As JSON, without what computes it."""
        return {key: value for key, value in asdict(self).items() if key != "build"}


def described(document: Mapping[str, Any]) -> Report:
    """The inverse of ``Report.describe``: a report that can be shown and asked for, not computed."""
    fields = dict(document)
    fields["parameters"] = tuple(
        Parameter(**{**each, "choices": tuple(each["choices"])}) for each in fields["parameters"]
    )
    chart = fields["chart"]
    fields["chart"] = Chart(**{**chart, "y": tuple(chart["y"])})
    fields["samples"] = tuple(fields["samples"])
    return Report(build=_not_here, **fields)


def _not_here(context: Any) -> Any:
    raise ReportError("this report is computed in its own process only")
