"""``dist/odradek``, the single executable, as a person has it: a Debian without Python, without a network.

`make binary` makes the file. The Debian is never written to: what the executable leaves must be in its cache and its
data directory.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import appliance
from dashboard.spark.java import find_java
from tests.support import debian, judge, processes, wire
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY
from tests.support.serving import serving

BINARY = Path(os.environ.get("BINARY_FOR_TESTS") or REPOSITORY / "dist" / "odradek")
PARTS = REPOSITORY / "build" / "parts.json"
MOST_BYTES = 110_000_000
NOBODY = 65534
ORDERS = 100
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


@pytest.mark.skipif(not PARTS.is_file(), reason="there is no build/parts.json (make binary)")
@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this machine is no Debian")
def test_the_build_tells_the_package_of_each_library_that_is_in_it(place: Path) -> None:
    parts = json.loads(PARTS.read_text())
    told = {each["name"] for each in parts if "pkg:deb/" in each["purl"]}
    assert "cpython" in {each["name"] for each in parts}
    interpreter_of_debian = any(name.startswith("libpython") for name in told)
    (tree,) = trees(place)
    libraries = list((place / "home" / ".cache" / "odradek" / tree / "lib").glob("lib*.so*"))
    assert len(libraries) > 5
    for library in libraries:
        if library.name.startswith("libpython") and not interpreter_of_debian:
            continue  # it is a part of cpython, built by somebody else
        search = ["dpkg-query", "--search", f"*/{library.name}"]
        found = subprocess.run(search, check=True, capture_output=True, text=True).stdout
        assert told & {line.split(":")[0] for line in found.splitlines()}, library.name


def test_a_damaged_file_says_so_and_unpacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    damaged = variant(tmp_path / "damaged", b"3" * 32)
    with damaged.open("r+b") as file:
        file.seek(BINARY.stat().st_size // 2)
        file.write(b"\0" * 64)
    said = run(tmp_path, "version", program=damaged, status=1)
    assert "damaged" in said
    assert "download it again" in said
    cut = tmp_path / "cut"
    cut.write_bytes(BINARY.read_bytes()[:-1000])
    cut.chmod(0o755)
    assert "not whole" in run(tmp_path, "version", program=cut, status=1)
    assert trees(tmp_path) == set()
    assert not (tmp_path / "home" / ".cache" / "odradek" / ".unpacking").exists()


def test_what_was_changed_in_the_cache_is_unpacked_anew(tmp_path: Path) -> None:
    """As who tidies up `/var/tmp` does it; what runs goes on."""
    (tmp_path / "home").mkdir()
    port = judge.free_port()
    process = subprocess.Popen(
        [BINARY, "serve", "--only", "broker", "--data", tmp_path / "data",
         "--listen", f"127.0.0.1:{port}"],
        env=environment(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        processes.wait_until(lambda: wire.answers(("127.0.0.1", port)), 60, "the broker")
        (name,) = trees(tmp_path)
        tree = tmp_path / "home" / ".cache" / "odradek" / name
        packages = next(tree.glob("lib/python3*"))
        listed = (tree / ".files").stat().st_size
        changes: tuple[Callable[[], None], ...] = (
            lambda: os.truncate(packages / "site-packages" / "appliance" / "cli.py", 10),
            lambda: shutil.rmtree(packages / "json"),
            lambda: (tree / ".files").unlink(),
            lambda: os.truncate(tree / ".files", listed // 2),
        )
        for change in changes:
            change()
            said = run(tmp_path, "-b", f"127.0.0.1:{port}", "status", "--format", "json")
            assert "unpacking them anew" in said
            assert '"healthy": true' in said
            assert (packages / "json" / "__init__.py").is_file()
            assert (packages / "site-packages" / "appliance" / "cli.py").stat().st_size > 10
            assert trees(tmp_path) == {name}
        assert "unpacking" not in run(tmp_path, "version")
    finally:
        assert processes.end(process, signal.SIGTERM, 60) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize(
    ("options", "says"), [("noexec", "nothing may be run"), ("size=20m", "No space left on device")]
)
def test_a_place_that_does_not_do_for_the_cache_is_said_with_what_to_do(
    options: str, says: str, tmp_path: Path
) -> None:
    """In a mount namespace of its own, which is gone with the process."""
    (tmp_path / "cache").mkdir()
    script = 'mount -t tmpfs -o "mode=700,$1" none cache && ODRADEK_CACHE=$PWD/cache "$2" version; code=$?; ls -A cache; exit $code'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", options, BINARY],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert says in done.stderr
    assert "it needs 200 MB" in done.stderr
    assert done.stdout.split() in ([], [".lock"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_home_where_nothing_may_be_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    script = (
        "mount -t tmpfs none /var/tmp && mount -t tmpfs -o noexec none home && mount -t tmpfs -o noexec none tmp"
        ' && "$1" version && ls /var/tmp && ls -A home/.cache/odradek'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", BINARY],
        env=environment(tmp_path) | {"TMPDIR": str(tmp_path / "tmp")},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, *places = done.stdout.splitlines()
    assert said.startswith("odradek ")
    assert places == ["odradek-0"]


START, USE, MOVE_IN, ELSEWHERE = re.findall(
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


KILLED = r"""
set -e
cd /mnt; mkdir home; touch mark
./odradek serve --data data >log 2>&1 &
serve=$!
for try in $(seq 300); do grep -q "is ready" log && break; kill -0 $serve; sleep 0.2; done
echo alice:book | ./odradek produce orders -K :
./odradek consume orders -g billing -e -f '%v\n'
for each in $serve $(cat /proc/$serve/task/$serve/children); do kill -9 $each; done
while pidof python >/dev/null; do sleep 0.2; done
find / -xdev -newer mark ! -type d
find /dev/shm -newer mark ! -type d
ls -A /mnt
"""


def test_killed_it_leaves_nothing_outside_of_its_cache_and_its_data(tmp_path: Path) -> None:
    """On a Debian where all can be written to, temporary directories too."""
    with debian.Guest(tmp_path / "work", is_writable=True) as guest:
        shutil.copy(BINARY, guest.work / "odradek")
        said = guest.run("sh", "-c", KILLED).splitlines()
    assert said[0] == "book"
    assert sorted(said[1:]) == ["data", "home", "log", "mark", "odradek"]


class Person:
    """Somebody without any rights, with an empty home and the file, on a Debian without Python. No port is taken."""

    def __init__(self, guest: debian.Guest) -> None:
        self._guest = guest
        shutil.copy(BINARY, guest.work / "odradek")
        (guest.work / "home").mkdir()
        for path in (guest.work, guest.work / "home", guest.work / "odradek"):
            os.chown(path, NOBODY, NOBODY)

    def command(self, words: str) -> list[str]:
        user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        return self._guest.command(*user, "--no-new-privs", "sh", "-ec", words)

    def types(self, words: str) -> str:
        done = subprocess.run(self.command(words), capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serving(self, words: str) -> AbstractContextManager[object]:
        return serving(
            self.command(f"echo $$ >serve.pid; exec {words}"),
            self._guest.work,
            ask_to_end=lambda: self.types("kill -TERM $(cat serve.pid)"),
        )


READ = "./odradek consume orders -o start -e -f '%p %o %T %k %v %h\\n' | sort"


def test_a_topic_of_an_apache_kafka_moves_in_is_backed_up_and_restored_by_the_page(
    tmp_path: Path,
) -> None:
    """As `docs/binary.md` has it, word for word but for the address, and on two machines."""
    start, move_in = START.strip(), MOVE_IN.replace("kafka.example:9092", "127.0.0.1:9095")
    (restore, serve_again) = ELSEWHERE.strip().splitlines()
    ports = {
        "listeners": "PLAINTEXT://127.0.0.1:9095,CONTROLLER://127.0.0.1:9096",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9095",
        "controller.quorum.voters": "1@127.0.0.1:9096",
    }
    kafka = ApacheKafka(tmp_path / "kafka", ports)
    with debian.Guest(tmp_path / "one") as guest, closing(kafka):
        guest.in_its_network(kafka.start)
        guest.in_its_network(write_orders)
        person = Person(guest)
        with person.serving(start):
            said = person.types(move_in)
            assert re.search(r"orders +imported +\d+", said)
            assert "billing" in said
            assert "is whole" in said
            records = person.types(READ)
        assert len(records.splitlines()) == ORDERS
    with debian.Guest(tmp_path / "two") as guest:
        shutil.copytree(tmp_path / "one" / "backups", guest.work / "backups")
        person = Person(guest)
        for path in (guest.work / "backups").rglob("*"):
            os.chown(path, NOBODY, NOBODY)
        os.chown(guest.work / "backups", NOBODY, NOBODY)
        person.types(restore)
        with person.serving(serve_again):
            assert person.types(READ) == records
            assert "billing" in person.types("./odradek group list")
        assert not (guest.work / "home" / ".config").exists()


def write_orders() -> None:
    to = {"bootstrap.servers": "127.0.0.1:9095"}
    producer = Producer(to)
    for number in range(ORDERS):
        producer.produce("orders", f"order {number}", f"customer {number % 7}", headers={"n": "1"})
    assert producer.flush(60) == 0
    consumer = Consumer({**to, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 40)], asynchronous=False)
    consumer.close()


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
