import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from dashboard import group_wire
from dashboard.wire import WireConnection

Answer = Callable[[bytes], WireConnection]


@pytest.fixture
def answered() -> Iterator[Answer]:
    """A connection to a peer that answers one request with the given bytes, and hangs up."""
    threads: list[threading.Thread] = []

    def start(answer: bytes) -> WireConnection:
        listening = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with listening, listening.accept()[0] as connection:
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                connection.recv(size, socket.MSG_WAITALL)
                connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return WireConnection(listening.getsockname(), 10)

    yield start
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection"),
        (struct.pack(">i", 10) + b"abc", "closed the connection"),
        (struct.pack(">i", -1), "not plausible"),
        (struct.pack(">i", 2**31 - 1), "not plausible"),
        (struct.pack(">i", 1) + b"a", "makes no sense"),
        # An error code that nobody knows, a length that runs on, a name that is no text.
        (struct.pack(">iibihbb", 13, 1, 0, 0, 32767, 1, 0), "makes no sense"),
        (struct.pack(">i", 20) + b"\xff" * 20, "makes no sense"),
        (struct.pack(">iibih6s", 17, 1, 0, 0, 0, b"\x02\x03\xff\xfe\x01\x01"), "makes no sense"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_broken_connection(
    answer: bytes, why: str, answered: Answer
) -> None:
    with answered(answer) as connection, pytest.raises(OSError, match=why):
        group_wire.list_groups(connection, with_types=True)
