"""``dist/odradek``, the single executable, as a person has it: a Debian without Python, without a network.

`make binary` makes the file. The Debian is never written to: what the executable leaves must be in its cache and its
data directory.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

import appliance
from dashboard.spark.java import find_java
from tests.support import debian, judge, processes, wire
from tests.support.odradek import REPOSITORY
from tests.support.serving import serving

BINARY = Path(os.environ.get("BINARY_FOR_TESTS") or REPOSITORY / "dist" / "odradek")
MOST_BYTES = 110_000_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARY.is_file(), reason="there is no dist/odradek (make binary)"),
]


def environment(place: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(place / "home"), "LC_ALL": "C.UTF-8"}


def run(place: Path, *arguments: str, program: Path = BINARY, status: int = 0) -> str:
    done = subprocess.run(
        [program, *arguments], env=environment(place), cwd=place, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an unpacked cache in it."""
    made = tmp_path_factory.mktemp("binary")
    (made / "home").mkdir()
    run(made, "version")
    return made


def trees(place: Path) -> set[str]:
    cache = place / "home" / ".cache" / "odradek"
    return {path.name for path in cache.iterdir() if not path.name.startswith(".")}


def variant(path: Path, name: bytes) -> Path:
    """The same executable under another hash, as another version's would be."""
    data = bytearray(BINARY.read_bytes())
    data[-40:-8] = name
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def test_it_is_one_file_of_the_size_that_was_promised(place: Path) -> None:
    assert BINARY.stat().st_size <= MOST_BYTES
    assert run(place, "version").startswith(f"odradek {appliance.VERSION} (python")


def test_many_first_starts_at_once_unpack_once(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    said: list[str] = []
    starts = [
        threading.Thread(target=lambda: said.append(run(tmp_path, "version"))) for _ in range(4)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(set(said)) == 1
    assert len(trees(tmp_path)) == 1


def test_a_start_that_is_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    cache = tmp_path / "home" / ".cache" / "odradek"
    process = subprocess.Popen([BINARY, "version"], env=environment(tmp_path), cwd=tmp_path)
    processes.wait_until(
        lambda: process.poll() is not None or (cache / ".unpacking" / "lib").exists(), 60, "a start"
    )
    process.kill()
    process.wait()
    run(tmp_path, "version")
    assert len(trees(tmp_path)) == 1
    assert not (cache / ".unpacking").exists()


def test_versions_that_nobody_runs_are_removed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    port = judge.free_port()
    first = variant(tmp_path / "first", b"1" * 32)
    second = variant(tmp_path / "second", b"2" * 32)
    process = subprocess.Popen(
        [first, "serve", "--only", "broker", "--data", tmp_path / "data",
         "--listen", f"127.0.0.1:{port}"],
        env=environment(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        processes.wait_until(lambda: wire.answers(("127.0.0.1", port)), 60, "the broker")
        run(tmp_path, "version", program=second)
        assert trees(tmp_path) == {"1" * 32, "2" * 32}
    finally:
        assert processes.end(process, signal.SIGTERM, 60) == 0
    run(tmp_path, "version")
    assert len(trees(tmp_path)) == 1
    assert trees(tmp_path) == trees(place)


def test_a_damaged_file_says_so_and_unpacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    damaged = variant(tmp_path / "damaged", b"3" * 32)
    with damaged.open("r+b") as file:
        file.seek(BINARY.stat().st_size // 2)
        file.write(b"\0" * 64)
    assert "damaged" in run(tmp_path, "version", program=damaged, status=1)
    cut = tmp_path / "cut"
    cut.write_bytes(BINARY.read_bytes()[:-1000])
    cut.chmod(0o755)
    assert "not whole" in run(tmp_path, "version", program=cut, status=1)
    assert trees(tmp_path) == set()
    assert not (tmp_path / "home" / ".cache" / "odradek" / ".unpacking").exists()


START, USE = re.findall(
    r"^```sh\n(.*?)^```",
    (REPOSITORY / "docs" / "binary.md").read_text(),
    re.DOTALL | re.MULTILINE,
)
#: What docs/binary.md says, and more.
SESSION = f"""
set -e
cd /mnt; mkdir -p home
{START.strip()} >log 2>&1 &
serve=$!
for try in $(seq 300); do grep -q "is ready" log && break; kill -0 $serve || {{ cat log; exit 1; }}; sleep 0.2; done
grep -q "is ready" log
{USE}
printf 'mia:lamp\\n' | ./odradek produce orders -K :
./odradek consume orders -o start -e -f '%k %v\\n' | sort
./odradek consume orders -g billing -e -f '%v\\n' | sort
./odradek group list
./odradek topic trim orders --before 1 --yes >/dev/null 2>&1 || true
./odradek report list || true
./odradek spark status
./odradek backup create /mnt/backups --data /mnt/data
./odradek doctor || true
kill $serve; wait $serve
echo ended $?
"""


def test_on_a_debian_without_python_and_network(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with debian.Guest(work) as guest:
        shutil.copy(BINARY, work / "odradek")
        said = guest.run("sh", "-c", SESSION, seconds=280)
    assert "alice book\nmia lamp\n" in said
    assert "book\nlamp\n" in said
    assert "billing" in said
    assert "apt install openjdk-17-jre-headless" in said
    assert "ended 0" in said
    assert {path.name for path in work.iterdir()} == {"odradek", "home", "log", "data", "backups"}


def test_reports_say_that_spark_is_missing_and_how_to_get_it(place: Path) -> None:
    if not find_java().problem:
        assert "`odradek spark prepare` downloads it" in run(place, "spark", "status")
    elsewhere = {**environment(place), "JAVA_HOME": "/nowhere"}
    done = subprocess.run(
        [BINARY, "spark", "status"], env=elsewhere, cwd=place, capture_output=True, text=True
    )
    assert "apt install openjdk-17-jre-headless" in done.stdout


def test_the_dashboard_is_whole(place: Path, tmp_path: Path) -> None:
    kafka, web = judge.free_port(), judge.free_port()
    where = ["--listen", f"127.0.0.1:{kafka}", "--web", f"127.0.0.1:{web}"]
    with (
        serving([BINARY, "serve", "--data", "data", *where], tmp_path, environment(place)),
        urllib.request.urlopen(f"http://127.0.0.1:{web}/login/") as page,
    ):
        assert "csrfmiddlewaretoken" in page.read().decode()
