"""Spark comes by a lock: cut off it goes on, changed it is refused, from a directory it is taken."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dashboard.spark import home, prepare
from dashboard.spark.home import SparkHome
from dashboard.spark.prepare import PrepareError
from tests.support import spark as spark_for_tests


def archive(**more: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, mode in (
            ("pyspark/__init__.py", 0o644),
            ("deps/jars/spark-core.jar", 0o644),
            ("deps/bin/spark-submit", 0o755),
            ("deps/examples/x.py", 0o644),
            ("pyspark/../../../outside.py", 0o644),
        ):
            member = tarfile.TarInfo(f"pyspark-4.2.0/{name}")
            member.size, member.mode = 4, mode
            file.addfile(member, io.BytesIO(b"here"))
        for name, data in more.items():
            member = tarfile.TarInfo(f"pyspark-4.2.0/deps/jars/{name}.jar")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def wheel() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("py4j/__init__.py", "")
    return packed.getvalue()


JAR = bytes(range(256)) * 40


class Server:
    """A package index and a Maven repository; ``cuts``: the next answers of a jar end there."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.cuts: list[int] = []
        self.ranges: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rstrip("/").rpartition("/")[2]
                if self.path.startswith("/simple/"):
                    listed = [{"filename": each, "url": f"/files/{each}"} for each in outer.files]
                    return self.answer(200, json.dumps({"files": listed}).encode())
                if name not in outer.files:
                    return self.answer(404, b"")
                data = outer.files[name]
                wanted = self.headers.get("Range")
                if wanted is None:
                    return self.answer(200, data)
                outer.ranges.append(f"{name} {wanted}")
                self.answer(206, data[int(wanted.removeprefix("bytes=").rstrip("-")) :])

            def answer(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if outer.cuts and self.path.endswith(".jar"):
                    data = data[: outer.cuts.pop(0)]
                    self.close_connection = True
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def ivy(root: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        name = "org/apache/ivy/core/settings/repository.properties"
        file.writestr(name, f"# of Ivy\nivy.ibiblio.default.artifact.root = {root}\n")
    return packed.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    files = {"pyspark-4.2.0.tar.gz": archive(), "py4j.whl": wheel(), "kafka.jar": JAR}

    def entry(name: str, **more: str) -> dict[str, Any]:
        digest = hashlib.sha256(files[name]).hexdigest()
        return {"bytes": len(files[name]), "sha256": digest, **more}

    lock = {
        "spark": "4.2.0",
        "python": [
            entry("pyspark-4.2.0.tar.gz", project="pyspark", file="pyspark-4.2.0.tar.gz"),
            entry("py4j.whl", project="py4j", file="py4j.whl"),
        ],
        "jars": [entry("kafka.jar", path="org/kafka/1/kafka.jar")],
    }
    monkeypatch.setattr(prepare, "lock", lambda: lock)
    monkeypatch.setattr(home, "lock", lambda: lock)
    found = Server(files)
    monkeypatch.setenv("PIP_INDEX_URL", f"{found.url}/simple")
    monkeypatch.setenv("ODRADEK_MAVEN", f"{found.url}/maven2")
    yield found
    found.close()


def ignore(name: str, have: int, size: int) -> None:
    pass


def test_files_are_where_an_installation_puts_them(server: Server, tmp_path: Path) -> None:
    spark = SparkHome(tmp_path / "spark")
    assert not spark.is_prepared
    prepare.prepare(spark, None, ignore)
    assert spark.is_prepared
    assert (spark.lib / "pyspark/jars/spark-core.jar").read_bytes() == b"here"
    assert (spark.lib / "pyspark/bin/spark-submit").stat().st_mode & 0o111
    assert (spark.lib / "py4j/__init__.py").exists()
    assert not (spark.lib / "pyspark/examples").exists()
    assert not list(tmp_path.rglob("outside.py"))
    assert [Path(path).read_bytes() for path in spark.jar_paths()] == [JAR]
    assert not (spark.directory / "downloads").exists()


def test_a_download_that_was_cut_off_goes_on(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000]
    prepare.prepare(SparkHome(tmp_path), None, ignore)
    assert server.ranges == ["kafka.jar bytes=1000-"]


def test_what_gave_up_goes_on_when_it_is_run_again(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000, *[10] * (prepare.ATTEMPTS - 1)]
    with pytest.raises(PrepareError, match="Run it again to go on from here"):
        prepare.prepare(SparkHome(tmp_path), None, ignore)
    server.ranges.clear()
    prepare.prepare(SparkHome(tmp_path), None, ignore)
    assert server.ranges == [f"kafka.jar bytes={1000 + 10 * (prepare.ATTEMPTS - 1)}-"]
    assert Path(SparkHome(tmp_path).jar_paths()[0]).read_bytes() == JAR


def test_a_file_that_is_not_the_locks_is_refused_and_fetched_anew(
    server: Server, tmp_path: Path
) -> None:
    spark = SparkHome(tmp_path)
    server.files["kafka.jar"] = JAR[::-1]
    with pytest.raises(PrepareError, match="its hash differs"):
        prepare.prepare(spark, None, ignore)
    assert not spark.is_prepared
    server.files["kafka.jar"] = JAR
    prepare.prepare(spark, None, ignore)
    assert spark.is_prepared


def test_what_is_not_there_is_said_with_another_way(server: Server, tmp_path: Path) -> None:
    del server.files["kafka.jar"]
    with pytest.raises(PrepareError, match=r"kafka\.jar cannot be fetched .* --from"):
        prepare.prepare(SparkHome(tmp_path), None, ignore)
    del server.files["py4j.whl"]
    with pytest.raises(PrepareError, match=r"has no py4j\.whl"):
        prepare.prepare(SparkHome(tmp_path / "other"), None, ignore)


def test_without_a_repository_named_the_jars_come_from_where_spark_would_fetch_them(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ODRADEK_MAVEN")
    with pytest.raises(PrepareError, match="ODRADEK_MAVEN"):
        prepare.prepare(SparkHome(tmp_path / "unknown"), None, ignore)
    packed = archive(**{"ivy-2.5.3": ivy(f"{server.url}/maven2/")})
    server.files["pyspark-4.2.0.tar.gz"] = packed
    (entry,) = (each for each in prepare.lock()["python"] if each["project"] == "pyspark")
    entry.update(bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())
    prepare.prepare(SparkHome(tmp_path / "known"), None, ignore)
    assert SparkHome(tmp_path / "known").is_prepared


def test_without_an_index_named_it_is_the_one_that_pip_says_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert re.fullmatch(r"https://\S+/simple/", prepare._index())


def test_a_directory_stands_in_for_the_network(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    for name, data in server.files.items():
        (source / "below" / name).write_bytes(data)
    server.files.clear()
    spark = SparkHome(tmp_path / "spark")
    prepare.prepare(spark, source, ignore)
    assert spark.is_prepared
    (source / "below" / "kafka.jar").unlink()
    with pytest.raises(PrepareError, match=r"has no kafka\.jar"):
        prepare.prepare(SparkHome(tmp_path / "other"), source, ignore)


def test_what_another_machine_has_prepared_is_taken_whole(server: Server, tmp_path: Path) -> None:
    first, second = SparkHome(tmp_path / "first"), SparkHome(tmp_path / "second")
    prepare.prepare(first, None, ignore)
    server.files.clear()
    prepare.prepare(second, first.directory, ignore)
    assert second.is_prepared
    assert (second.lib / "pyspark/bin/spark-submit").stat().st_mode & 0o111
    assert [Path(path).read_bytes() for path in second.jar_paths()] == [JAR]
    (first.jars / "kafka.jar").write_bytes(JAR[::-1])
    third = SparkHome(tmp_path / "third")
    with pytest.raises(PrepareError, match=r"first/jars/kafka\.jar .* its hash differs"):
        prepare.prepare(third, first.directory, ignore)
    assert not third.is_prepared


@pytest.mark.slow
def test_a_machine_without_a_network_is_prepared_from_another_one(tmp_path: Path) -> None:
    """The real one: 460 MB, and what comes of it can be imported."""
    source = spark_for_tests.require().directory
    data = tmp_path / "data"
    data.mkdir()
    command = [sys.executable, "-m", "appliance", "spark"]
    offline = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")},
        "PIP_INDEX_URL": "http://127.0.0.1:9/", "ODRADEK_MAVEN": "http://127.0.0.1:9/",
    }  # fmt: skip

    def odradek(*words: str) -> str:
        done = subprocess.run(
            [*command, *words, "--data", str(data)], cwd=spark_for_tests.REPOSITORY, env=offline,
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        return done.stdout

    odradek("prepare", "--from", str(source))
    (told,) = json.loads(odradek("status", "--format", "json"))["data"]
    assert told["is_ready"]
    code = f"{odradek('env')}exec {sys.executable} -c 'import pyspark; print(pyspark.__version__)'"
    done = subprocess.run(
        ["sh", "-c", code], env=offline, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == told["spark"]


def test_the_lock_names_the_version_that_pyproject_does() -> None:
    home.lock.cache_clear()
    project = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
    assert f'spark = ["pyspark=={home.lock()["spark"]}"]' in project
    assert all(each["path"].endswith(".jar") for each in home.lock()["jars"])
