from __future__ import annotations

import pytest

from broker.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a=b=c", {"a": "b=c"}),
        ("# a=b\n! c=d\n\n   # e=f\n", {}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\\\=b", {"a\\": "b"}),
        ("a=\\u00e4\\t\\n\\q", {"a": "ä\t\nq"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a=1\na=2", {"a": "2"}),
        ("=b", {"": "b"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings
