from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.definition import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    DistinctItems,
    GzipLevel,
    NonEmpty,
    OneOf,
    Range,
    ThrottledReplicas,
    check_length,
    render,
    split_items,
)
from broker.model.error_code import ErrorCode


def key(kind: ConfigType, **more: object) -> ConfigKey:
    return ConfigKey("some.setting", kind, None, "Some setting.", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " True ", True),
        (ConfigType.BOOLEAN, "FALSE", False),
        (ConfigType.INT, "\t-5\n", -5),
        (ConfigType.INT, "+2147483647", 2**31 - 1),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.DOUBLE, ".5f", 0.5),
        (ConfigType.DOUBLE, "5.", 5.0),
        (ConfigType.DOUBLE, "-Infinity", -math.inf),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a ,b,, c", ("a", "b", "", "c")),
        (ConfigType.STRING, "  two words ", "two words"),
        (ConfigType.CLASS, "org.example.Thing", "org.example.Thing"),
        (ConfigType.PASSWORD, " hush ", "hush"),
    ],
)
def test_text_is_read_as_java_reads_it(kind: ConfigType, text: str, value: ConfigValue) -> None:
    assert key(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "0x10"),
        (ConfigType.INT, "\u00a05"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "1.0"),
        (ConfigType.LONG, "--1"),
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "."),
        (ConfigType.DOUBLE, ""),
    ],
)
def test_what_java_does_not_read_is_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"some\.setting") as caught:
        key(kind).parse(text)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert caught.value.name == "some.setting"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0001, "1.0E-4"),
        (0.00012, "1.2E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (0.0, "0.0"),
        (("a", "b"), "a,b"),
        ((), ""),
        ("text", "text"),
        (None, None),
    ],
)
def test_values_are_rendered_as_java_writes_them(value: ConfigValue, text: str | None) -> None:
    assert render(value) == text


@given(st.floats())
def test_every_double_survives_rendering_and_reading(value: float) -> None:
    again = key(ConfigType.DOUBLE).parse(render(value))
    assert isinstance(again, float)
    assert again == value or (math.isnan(again) and math.isnan(value))


@given(st.text(max_size=50), st.sampled_from(list(ConfigType)[1:]))
def test_any_text_is_read_or_refused_with_a_reason(text: str, kind: ConfigType) -> None:
    try:
        render(key(kind).parse(text))
    except ConfigError as error:
        assert "some.setting" in error.reason  # noqa: PT017 - both outcomes are fine


@pytest.mark.parametrize(
    ("validator", "good", "bad"),
    [
        (Range(1, 3), (1, 3, 2.5), (0, 4, None)),
        (Range(0), (0, 2**63), (-1,)),
        (OneOf(("a", "b")), ("a",), ("A", None)),
        (OneOf(("a", "b"), ignore_case=True), ("A",), ("c",)),
        (DistinctItems(("a", "b")), ((), ("a",), ("b", "a")), (("c",), ("",), None)),
        (DistinctItems(may_be_empty=False, may_be_null=True), (None, ("x",)), ((),)),
        (NonEmpty(), ("x", None), ("",)),
        (GzipLevel(), (-1, 1, 9), (0, 10, -2)),
        (ThrottledReplicas(), (("*",), ("0:1", "1:2"), ()), (("0",), ("*", "0:1"))),
    ],
)
def test_validators_know_good_from_bad(
    validator: object, good: tuple[ConfigValue, ...], bad: tuple[ConfigValue, ...]
) -> None:
    for value in good:
        assert validator.problem(value) is None  # type: ignore[attr-defined]
    for value in bad:
        assert validator.problem(value)  # type: ignore[attr-defined]


def test_repeated_items_are_dropped_where_items_must_be_distinct() -> None:
    assert key(ConfigType.LIST, validator=DistinctItems()).check("a, b,a") == ("a", "b")
    assert key(ConfigType.LIST).parse("a,a") == ("a", "a")
    assert split_items(" a, b,a") == ("a", "b", "a")


def test_a_password_is_not_in_the_refusal() -> None:
    with pytest.raises(ConfigError) as caught:
        key(ConfigType.PASSWORD, validator=OneOf(("x",))).check("hush")
    assert "hush" not in str(caught.value)


def test_a_value_of_the_longest_length_is_taken() -> None:
    check_length("some.setting", "x" * 32767)
    with pytest.raises(ConfigError):
        check_length("some.setting", "x" * 32768)
