import os
import sys

from hypothesis import given
from hypothesis import strategies as st

from appliance.supervisor import process
from appliance.supervisor.process import ChildProcess, LineBuffer

SHOW_PARENT = r"""
import os, sys
fd = int(os.environ["ODRADEK_PARENT_FD"])
os.write(1, b"up %d\n" % (os.getpgid(0) == os.getpid()))
os.write(1, b"gone %d\n" % len(os.read(fd, 1)))
"""


@given(st.lists(st.binary(max_size=10), max_size=10))
def test_lines_do_not_depend_on_how_output_was_cut(pieces: list[bytes]) -> None:
    buffer = LineBuffer()
    lines = [line for piece in pieces for line in buffer.feed(piece)] + buffer.end()
    whole = b"".join(pieces).decode(errors="replace")
    expected = [line.rstrip("\r") for line in whole.split("\n")]
    assert lines[: len(expected) - 1] == expected[:-1]


def test_an_endless_line_is_passed_on_in_pieces() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"x" * (process.MAX_LINE_BYTES + 1)) == ["x" * (process.MAX_LINE_BYTES + 1)]
    assert buffer.end() == []


def test_a_child_has_its_own_group_and_sees_its_parent_go() -> None:
    read_fd, write_fd = os.pipe()
    child = ChildProcess("child", [sys.executable, "-c", SHOW_PARENT], read_fd)
    os.close(read_fd)
    os.set_blocking(child.output.fileno(), True)
    assert child.read_lines() == ["up 1"]
    os.close(write_fd)
    assert child.read_lines() == ["gone 0"]
    child._process.wait(30)
    assert child.last_lines() == []
    assert child.poll() == 0
    child.close()
