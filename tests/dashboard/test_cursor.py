"""Places in the addresses of pages."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import cursor


@given(
    st.dictionaries(st.integers(0, 100_000), st.integers(0, 2**63 - 1), min_size=1, max_size=400)
)
def test_a_cursor_comes_back(positions: dict[int, int]) -> None:
    assert cursor.decode(cursor.encode(positions)) == positions


def test_a_cursor_of_many_partitions_fits_into_an_address_of_16000() -> None:
    positions = {partition: 10**9 + partition * 7919 for partition in range(1_000)}

    assert len(cursor.encode(positions)) < 12_000


@pytest.mark.parametrize(
    "text",
    ["x", "0", "0:", ":1", "0:1,", "0:-1", "0:1:2", "z", "z!!", "zAAAA", "0:" + "9" * 40, "٣:1"],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(cursor.CursorError):
        cursor.decode(text)


def test_a_packed_word_that_unpacks_to_much_is_refused() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0:1," * 1_000_000)).decode()

    with pytest.raises(cursor.CursorError):
        cursor.decode("z" + bomb)
