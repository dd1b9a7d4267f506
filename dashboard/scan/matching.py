"""Which records are wanted: those of the chosen times, with plain texts, and an expression."""

from __future__ import annotations

from dashboard.cluster import Record
from dashboard.expressions import EvaluationError, Expression
from dashboard.scan.requests import Range, Wanted


class Matcher:
    """Counts what an expression could not be evaluated for, and keeps the first reason.

    Plain texts are looked for as bytes, exactly as typed: whatever the value is, however large.
    """

    def __init__(self, wanted: Wanted, chosen: Range) -> None:
        """Raises ExpressionError."""
        self.outside_count = 0
        """Records between others that are stamped outside the chosen times."""
        self._chosen = chosen
        self.error_count = 0
        self.first_error = ""
        self._in_key = wanted.in_key.encode()
        self._in_value = wanted.in_value.encode()
        self._in_header = wanted.in_header
        self._header_bytes = wanted.in_header.encode()
        self._expression = Expression(wanted.expression) if wanted.expression.strip() else None

    def matches(self, record: Record) -> bool:
        if not self._chosen.has_time(record.timestamp_ms):
            self.outside_count += 1
            return False
        if self._in_key and self._in_key not in (record.key or b""):
            return False
        if self._in_value and self._in_value not in (record.value or b""):
            return False
        if self._in_header and not any(
            self._in_header in name or (value is not None and self._header_bytes in value)
            for name, value in record.headers
        ):
            return False
        return self._expression is None or self._evaluates(self._expression, record)

    def _evaluates(self, expression: Expression, record: Record) -> bool:
        try:
            return expression.matches(record)
        except EvaluationError as error:
            self.error_count += 1
            if not self.first_error:
                self.first_error = (
                    f"partition {record.partition}, offset {record.offset}: {error.reason}"
                )
            return False
