"""Messages as files: nothing is lost to a reader that is early, to a taker that dies, to bad data."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance import mailbox
from appliance.mailbox import Mailbox, MailboxFull

QUEUE = "odradek"
REPOSITORY = Path(__file__).resolve().parents[2]
TAKER = """
import sys, time
from pathlib import Path
from appliance.mailbox import Mailbox
box = Mailbox(Path(sys.argv[1]))
for _ in range(5):
    assert box.take("odradek")
print("taken", flush=True)
time.sleep(600)
"""


def taken(box: Mailbox) -> list[bytes]:
    found = []
    while (message := box.take(QUEUE)) is not None:
        found.append(message[1])
        box.discard(message[0])
    return found


def test_messages_are_taken_once_and_in_order(tmp_path: Path) -> None:
    writer, one, other = (Mailbox(tmp_path) for _ in range(3))
    for number in range(10):
        writer.put(QUEUE, str(number).encode())
    first, second = one.take(QUEUE), other.take(QUEUE)
    assert first is not None
    assert second is not None
    assert [first[1], second[1]] == [b"0", b"1"]
    assert taken(one) == [str(number).encode() for number in range(2, 10)]
    assert other.take(QUEUE) is None


def test_queues_are_told_apart(tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    box.put("other", b"theirs")
    assert box.take(QUEUE) is None
    assert (box.size("other"), box.size(QUEUE)) == (1, 0)
    assert box.purge("other") == 1


def test_what_a_killed_process_had_taken_is_given_back(tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    sent = [str(number).encode() for number in range(8)]
    for message in sent:
        box.put(QUEUE, message)
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKER, str(tmp_path)], stdout=subprocess.PIPE, cwd=REPOSITORY
    )
    with taker:
        assert taker.stdout is not None
        assert taker.stdout.readline() == b"taken\n"
        assert box.give_back() == 0, "its process lives"
        os.kill(taker.pid, signal.SIGKILL)
        taker.wait()
    assert box.give_back() == 5
    assert taken(box) == sent
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [box._own.name]  # type: ignore[union-attr]


def test_closing_gives_back_what_was_not_acknowledged(tmp_path: Path) -> None:
    box, other = Mailbox(tmp_path), Mailbox(tmp_path)
    box.put(QUEUE, b"one")
    assert box.take(QUEUE) is not None
    box.close()
    assert taken(other) == [b"one"]


def test_every_message_arrives_while_writers_and_readers_run(tmp_path: Path) -> None:
    count, writers = 200, 4
    found: list[bytes] = []
    done = threading.Event()

    def write(writer: int) -> None:
        box = Mailbox(tmp_path)
        for number in range(count):
            box.put(QUEUE, f"{writer}-{number}".encode())

    def read() -> None:
        box = Mailbox(tmp_path)
        while not (done.is_set() and box.size(QUEUE) == 0):
            found.extend(taken(box))

    readers = [threading.Thread(target=read) for _ in range(2)]
    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in readers + threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert sorted(found) == sorted(
        f"{writer}-{number}".encode() for writer in range(writers) for number in range(count)
    )


def test_a_full_mailbox_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MAX_MESSAGES", 3)
    box = Mailbox(tmp_path)
    for _ in range(3):
        box.put(QUEUE, b"")
    with pytest.raises(MailboxFull):
        box.put(QUEUE, b"")


def test_what_was_left_aside_is_cleared_away_after_a_while(tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    old, young = tmp_path / "aside" / "old", tmp_path / "aside" / "young"
    old.touch()
    young.touch()
    os.utime(old, (1, 1))
    box.give_back()
    assert [path.name for path in (tmp_path / "aside").iterdir()] == ["young"]
