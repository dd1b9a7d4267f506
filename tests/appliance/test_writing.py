import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance import writing
from appliance.writing import BadInput, LineFormat, LineSplitter, parse_json, read_pieces


@given(st.lists(st.binary(max_size=12), max_size=12), st.sampled_from([b"\n", b"ab", b"\r\n"]))
def test_lines_do_not_depend_on_how_the_input_was_cut(
    pieces: list[bytes], delimiter: bytes
) -> None:
    splitter = LineSplitter(delimiter)
    lines = [line for piece in pieces for line in splitter.feed(piece)] + splitter.end()
    whole = b"".join(pieces).split(delimiter)
    assert lines == (whole if whole[-1] else whole[:-1])


def test_a_line_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_LINE_BYTES", 10)
    splitter = LineSplitter()
    splitter.feed(b"0123456789")
    with pytest.raises(BadInput, match="longer than 10 bytes"):
        splitter.feed(b"x")


def test_a_slow_pipe_is_read_as_it_comes() -> None:
    read_fd, write_fd = os.pipe()
    was_idle = threading.Event()
    pieces = read_pieces(read_fd, was_idle.set, idle_s=0.01)
    os.write(write_fd, b"one\n")
    assert next(pieces) == b"one\n"
    closer = threading.Thread(target=lambda: (was_idle.wait(), os.close(write_fd)))
    closer.start()
    assert list(pieces) == []
    closer.join()
    os.close(read_fd)
    assert was_idle.is_set()


def test_a_line_is_a_value() -> None:
    assert LineFormat().parse(b"a:b") == (None, b"a:b", ())


def test_key_and_value_are_parted_at_the_first_separator() -> None:
    assert LineFormat(key_separator=b":").parse(b"k:v:w") == (b"k", b"v:w", ())


def test_a_line_without_its_separator_is_refused() -> None:
    with pytest.raises(BadInput, match="no key separator"):
        LineFormat(key_separator=b":").parse(b"kv")


def test_empty_parts_become_null_when_asked() -> None:
    assert LineFormat(key_separator=b":", empty_is_null=True).parse(b":") == (None, None, ())
    assert LineFormat(key_separator=b":").parse(b":") == (b"", b"", ())


def test_every_record_gets_the_key_and_headers_given() -> None:
    parsed = LineFormat(key=b"k", headers=[("h", None)]).parse(b"v")
    assert parsed == (b"k", b"v", [("h", None)])


def test_json_values_that_are_objects_are_sent_as_json() -> None:
    assert parse_json(b'{"key": 7, "value": {"a": [1, "\xc3\xa4"]}}') == (
        b"7",
        '{"a":[1,"ä"]}'.encode(),
        [],
    )


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[]",
        b"1",
        b'{"headers": 1}',
        b'{"headers": [1]}',
        b'{"headers": [{"value": "x"}]}',
        b'{"value": "?", "value_encoding": "base64"}',
        b'{"value": 1, "value_encoding": "base64"}',
        b"\xff",
    ],
)
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(BadInput):
        parse_json(line)
