"""What people type as a filter: what it means, what is refused, and where."""

import pytest

from dashboard.cluster import Record
from dashboard.expressions import MAX_LENGTH, EvaluationError, Expression, ExpressionError


def record(value: bytes | None, **more: object) -> Record:
    fields = {"key": b"k1", "headers": [("a", b"1"), ("a", b"2"), ("b", None)], **more}
    return Record("orders", 3, 7, 1, 1_700_000_000_000, value=value, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "key == 'k1' && partition == 3 && offset == 7 && topic == 'orders'",
        "timestamp >= 1700000000000",
        "value.contains('total')",
        "json.total == 9007199254740993",
        "json.huge == 18446744073709551615u",
        "json.items.exists(item, item.sku == 'x' && item.count > 2)",
        "has(json.total) && !has(json.missing)",
        "headers['a'] == '2' && headers['b'] == null",
        "header_list[0] == ['a', '1'] && size(header_list) == 3",
        "value.matches('(?i)TOTAL')",
        "size > 10",
    ],
)
def test_an_expression_matches(text: str) -> None:
    value = b'{"total": 9007199254740993, "huge": 18446744073709551615, "items": [{"sku": "x", "count": 3}]}'

    assert Expression(text).matches(record(value))


def test_neighbours_of_large_whole_numbers_are_told_apart() -> None:
    assert not Expression("json.n == 9007199254740992").matches(record(b'{"n": 9007199254740993}'))
    assert not Expression("json.n == 9223372036854775806").matches(
        record(b'{"n": 9223372036854775807}')
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("value.contains(", 1, 16, "ends too early"),
        ("key == 'a' &&\n  vlaue == 'vlaue'", 2, 3, "unknown name vlaue"),
        ("key.lower() == 'a'", 1, 5, "unknown function lower"),
        ("value.matches('(a+')", 1, 15, "unclosed group"),
        ("value.matches('(a{1000}){1000}')", 1, 15, "size limit"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(ExpressionError, match=words) as raised:
        Expression(text)

    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * (MAX_LENGTH + 1),
        "json.all(a, json.all(b, json.all(c, c == a)))",
        "(" * 900 + "true" + ")" * 900,
        "[" * 900 + "]" * 900,
    ],
)
def test_what_would_take_too_much_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("json.b == 1", b"{}", "no such field: b"),
        ("key.contains('x')", b"", "does not apply"),
        ("json", b"{}", "true or false"),
        ("value == ''", b"a" * 5_000_000, "too large"),
        ("json.exists(a, json.exists(b, a == b + 1))", b"[" + b"0," * 5_000 + b"0]", "elements"),
        ("json.exists(a, value.contains(a))", b'["b"' + b',"b"' * 99_999 + b"]", "elements"),
    ],
)
def test_what_a_record_does_not_allow_is_an_error_of_that_record(
    text: str, value: bytes, words: str
) -> None:
    with pytest.raises(EvaluationError, match=words):
        Expression(text).matches(record(value, key=None))


def test_a_pattern_that_explodes_elsewhere_is_linear_here() -> None:
    """With Python's `re` this would not end within the age of the universe."""
    assert not Expression("value.matches('(a+)+$')").matches(record(b"a" * 3_000_000 + b"!"))


def test_a_deeply_nested_value_is_no_json() -> None:
    assert Expression("json == null").matches(record(b"[" * 100_000))
