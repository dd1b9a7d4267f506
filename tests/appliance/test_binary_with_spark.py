"""``dist/odradek-with-spark``, the single executable that carries Spark for reports, on a Debian without Python, without
a network, with Java and without.

`make binary-with-spark` makes the file.
"""

import asyncio
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support import debian, processes
from tests.support.odradek import REPOSITORY
from tests.support.serving import serving as serve_beside
from tests.support.web import post
from tests.support.websocket import WebSocket

BINARY = Path(
    os.environ.get("BINARY_WITH_SPARK_FOR_TESTS") or REPOSITORY / "dist" / "odradek-with-spark"
)
MOST_BYTES = 110_000_000 + 480_000_000
PASSWORD = "correct-horse-9"
WEB = "http://127.0.0.1:8080"
SPARK_S = 400.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not BINARY.is_file(), reason=f"there is no dist/{BINARY.name} (make binary-with-spark)"
    ),
]
#: The interpreter of Spark's workers tells who it is.
REPORT = """
import hashlib
import sys

from spark_tasks.lazy import functions as F
from spark_tasks.report import Parameter, Report


def build(context):
    mark = F.udf(lambda text: hashlib.md5(text.encode()).hexdigest() + " " + sys.executable)
    return context.records.select(mark(context.text("page")).alias("mark")).orderBy("mark")


REPORT = Report(name="marks", title="Marks", description="By Python.", build=build)
"""
FORM = {
    "name": "marks", "topics": "pages", "range": "start", "timeout_s": "300", "keep_runs": "5",
    "format_kind": "json", "format_schema": "page string",
}  # fmt: skip


@contextmanager
def serving(guest: debian.Guest) -> Iterator[None]:
    """`serve` there, from when it is ready; it has to end well."""
    script = f"echo $$ >serve.pid; ODRADEK_ADMIN_PASSWORD={PASSWORD} exec odradek serve"
    with serve_beside(
        guest.command("sh", "-c", script),
        guest.work,
        ask_to_end=lambda: guest.run("sh", "-c", "kill -TERM $(cat serve.pid)"),
    ):
        yield


@contextmanager
def signed_in() -> Iterator[httpx.Client]:
    with httpx.Client(base_url=WEB, timeout=60, follow_redirects=True) as client:
        page = client.get("login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token[1]}
        assert client.post("login/", data=form).url.path == "/"
        yield client


async def next_row(client: httpx.Client, topic: str, produce: list[str], line: str) -> str:
    """What the live tail shows of a record that is written once it is going."""
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    socket = await WebSocket.open(f"{WEB}/tail/socket/", origin=WEB, headers={"Cookie": cookies})
    socket.send_json({"type": "start", "topics": [topic], "filter": "", "last": 0})
    is_live = False
    try:
        while True:
            frame = await socket.receive_json(60)
            socket.send_json({"type": "ack", "seq": frame["seq"]})
            if frame["rows"]:
                value: str = frame["rows"][0]["value"]["text"]
                return value
            if not is_live and any(one["state"] == "live" for one in frame.get("topics", [])):
                is_live = True
                subprocess.run(produce, input=line, text=True, check=True, timeout=60)
    finally:
        await socket.close()


def make_report(client: httpx.Client) -> None:
    answer = post(client, "reports/new/?kind=user/marks", FORM)
    assert "Report marks saved." in answer.text, answer.text


def test_its_second_part_has_the_size_that_was_promised() -> None:
    assert BINARY.stat().st_size <= MOST_BYTES


def test_all_of_it_from_one_file_on_a_debian_with_java(tmp_path: Path) -> None:
    with debian.Guest(tmp_path / "work", debian.require_java()) as guest:
        shutil.copy(BINARY, guest.work / "odradek")
        with serving(guest):
            guest.run("odradek", "topic", "create", "pages", "-p", "2")
            pages = "".join(f'k{n}:{{"page": "/p{n}"}}\n' for n in range(20))
            guest.run("odradek", "produce", "pages", "-K", ":", text=pages)
            read = guest.run("odradek", "consume", "pages", "-o", "start", "-e", "-f", "%k\\n")
            assert sorted(read.split()) == sorted(f"k{n}" for n in range(20))

            retention_deletes_what_is_too_much(guest)

            (guest.work / "data" / "user-reports").mkdir(exist_ok=True)
            (guest.work / "data" / "user-reports" / "marks.py").write_text(REPORT)

            def visit() -> None:
                with signed_in() as client:
                    produce = guest.command("odradek", "produce", "pages")
                    row = asyncio.run(next_row(client, "pages", produce, '{"page": "/late"}\n'))
                    assert row == '{"page": "/late"}'
                    make_report(client)

            guest.in_its_network(visit)

            cache = guest.work / "home" / ".cache" / "odradek"
            assert len(trees(cache)) == 1, "Spark is unpacked by the first report, and not before"
            shown = guest.run(
                *("odradek", "report", "run", "marks", "--format", "json"), seconds=SPARK_S
            )
            rows = [row["mark"].split() for row in json.loads(shown[shown.index("{") :])["data"]]
            assert len({mark for mark, _ in rows}) == 21
            (interpreter,) = {program for _, program in rows}
            assert interpreter.startswith("/mnt/home/.cache/odradek/")
            assert len(trees(cache)) == 2
            spark = next(each for each in trees(cache) if (each / "prepared.json").exists())
            with (spark / ".lock").open("r+") as lock:  # nobody's any more
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert {path.name for path in guest.work.iterdir()} == {
            "odradek", "java", "home", "log", "serve.pid", "data",
        }  # fmt: skip
        assert {path.name for path in (guest.work / "home").iterdir()} == {".cache"}


def retention_deletes_what_is_too_much(guest: debian.Guest) -> None:
    settings = ("segment.bytes=1048576", "retention.bytes=1048576")
    options = [word for each in settings for word in ("-c", each)]
    guest.run("odradek", "topic", "create", "clicks", "-p", "1", *options)
    guest.run("odradek", "produce", "clicks", text=("x" * 1000 + "\n") * 5000)
    # Its own turn may come in between, and says so.
    guest.run("sh", "-c", "odradek job run 'Retention of all topics' || true")

    def first() -> int:
        read = ("odradek", "consume", "clicks", "-o", "start", "-n", "1", "-f", "%o\\n")
        return int(guest.run(*read))

    processes.wait_until(lambda: first() > 0, 120, "retention", every=1)


def trees(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if not path.name.startswith(".")]


def test_without_java_reports_say_what_is_missing(tmp_path: Path) -> None:
    with debian.Guest(tmp_path / "work") as guest:
        shutil.copy(BINARY, guest.work / "odradek")
        (guest.work / "data" / "user-reports").mkdir(parents=True)
        (guest.work / "data" / "user-reports" / "marks.py").write_text(REPORT)
        with serving(guest):
            guest.run("odradek", "topic", "create", "pages", "-p", "2")

            def visit() -> None:
                with signed_in() as client:
                    make_report(client)
                    assert "apt install openjdk-17-jre-headless" in client.get("reports/").text

            guest.in_its_network(visit)
            said = guest.run("odradek", "report", "run", "marks", status=1, seconds=SPARK_S)
            assert "need Java 17 or newer: not installed" in said
            assert "apt install openjdk-17-jre-headless" in said
            assert len(trees(guest.work / "home" / ".cache" / "odradek")) == 1


def test_a_disk_that_is_too_small_for_spark_is_said_and_nothing_stays_on_it(tmp_path: Path) -> None:
    with debian.Guest(tmp_path / "work") as guest:
        shutil.copy(BINARY, guest.work / "odradek")
        guest.run("sh", "-c", "mkdir small; mount -t tmpfs -o size=400m,mode=700 tmpfs small")
        with_cache = ("env", "ODRADEK_CACHE=/mnt/small", "odradek")
        guest.run(*with_cache, "version")
        said = guest.run(*with_cache, "spark", "prepare", status=1)
        assert "No space left on device" in said
        assert "ODRADEK_CACHE=DIR names another place" in said
        left = guest.run("ls", "-A", "small").split()
        assert ".unpacking" not in left
        assert len([name for name in left if not name.startswith(".")]) == 1
