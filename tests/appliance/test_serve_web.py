"""``odradek serve`` as a whole: broker, worker and web as its children, met over HTTP.

One start serves most tests of this file: what each does leaves the processes as they were.
"""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import judge, processes, wire

REPOSITORY = Path(__file__).resolve().parents[2]
PASSWORD = "correct-horse-9"
LONG = 200
"""Characters of a data directory's path: a socket's address has room for half of it."""


class Appliance:
    """An ``odradek serve`` on free ports."""

    def __init__(self, data: Path, *arguments: str, settings: dict[str, str] | None = None) -> None:
        self.data = data
        self.arguments = arguments
        self.kafka = ("127.0.0.1", judge.free_port())
        self.web = judge.free_port()
        self.root_path = ""
        self.settings = settings or {}
        self.out, self.err = data.with_name("out.txt"), data.with_name("err.txt")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web}{self.root_path}"

    def launch(self) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("wb") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "appliance", "serve", "--data", str(self.data)),
                    *("--listen", "{}:{}".format(*self.kafka), "--web", f"127.0.0.1:{self.web}"),
                    *self.arguments,
                ],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**environment(), **self.settings},
            )

    def start(self) -> "Appliance":
        self.launch()
        assert self.process is not None
        process = self.process
        processes.wait_until(
            lambda: process.poll() is not None or "is ready." in self.said(), 180, "the banner"
        )
        assert process.poll() is None, self.log()
        return self

    def said(self) -> str:
        return self.out.read_text()

    def log(self) -> str:
        return self.err.read_text()

    def children(self) -> dict[str, int]:
        """Process ids by name, as the kernel knows them."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {name_of(int(pid)): int(pid) for pid in path.read_text().split()}

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        return processes.end(self.process, number, 90)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            children = self.children()
            self.stop(signal.SIGKILL)
            for pid in children.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
    kept.pop("DJANGO_SETTINGS_MODULE", None)
    return {**kept, "ODRADEK_BROKER_METRICS": ""}


def name_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    module = words[words.index("-m") + 1]
    return module.removeprefix("appliance.")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    base = tmp_path_factory.mktemp("serve")
    data = base / ("d" * (LONG - len(str(base)) - 1))
    assert len(str(data)) == LONG
    one = Appliance(data, settings={"ODRADEK_METRICS_TOKEN": "figures"})
    try:
        yield one.start()
        assert one.stop() == 0, one.log()
    finally:
        one.close()


def token_of(client: httpx.Client, path: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


def test_everything_answers_and_the_banner_says_where(appliance: Appliance) -> None:
    said = appliance.said()
    assert f"  Kafka      127.0.0.1:{appliance.kafka[1]}\n" in said
    assert f"  Dashboard  {appliance.url}\n" in said
    assert wire.answers(appliance.kafka)
    assert appliance.get("/healthz").text == "ok\n"
    assert appliance.get("/readyz").json() == {"ready": True}
    assert set(appliance.children()) == {"broker", "worker", "web"}


def test_the_first_admin_signs_in_once_with_the_made_password_and_has_to_change_it(
    appliance: Appliance,
) -> None:
    path = appliance.data / "initial-admin-password"
    assert f"admin, password in {path}" in appliance.said()
    password = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((appliance.data / "secret_key").stat().st_mode) == 0o600
    assert password not in appliance.log() + appliance.said()
    with httpx.Client(base_url=appliance.url, timeout=30, follow_redirects=True) as client:
        form = {"username": "admin", "password": password}
        token = token_of(client, "/login/")
        page = client.post("/login/", data={**form, "csrfmiddlewaretoken": token})
        assert page.url.path == "/account/password/"
        assert not path.exists()
        assert client.get("/").url.path == "/account/password/", "nothing else before that"
        change = {"old_password": password, "new_password1": PASSWORD, "new_password2": PASSWORD}
        token = token_of(client, "/account/password/")
        client.post("/account/password/", data={**change, "csrfmiddlewaretoken": token})
        assert client.get("/").url.path == "/"
        assert "odradek_scheduler_up 1.0" in client.get("/metrics").text


def test_metrics_need_the_token(appliance: Appliance) -> None:
    assert appliance.get("/metrics").status_code == 401
    headers = {"Authorization": "Bearer wrong"}
    assert httpx.get(f"{appliance.url}/metrics", headers=headers).status_code == 401
    headers = {"Authorization": "Bearer figures"}
    text = httpx.get(f"{appliance.url}/metrics", headers=headers, timeout=30).text
    for line in (
        "odradek_broker_ready 1.0",
        "kafka_controller_kafkacontroller_activebrokercount 1.0",
        "process_resident_memory_bytes",
    ):
        assert line in text


def test_probes_ask_by_whatever_name_and_without_a_session(appliance: Appliance) -> None:
    headers = {"Host": "10.1.2.3"}
    assert httpx.get(f"{appliance.url}/healthz", headers=headers).status_code == 200
    assert httpx.get(f"{appliance.url}/readyz", headers=headers, timeout=30).status_code == 200


def test_the_broker_comes_first_where_cores_are_short(appliance: Appliance) -> None:
    pids = appliance.children()
    niceness = {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in pids.items()}
    assert niceness["web"] > niceness["broker"]


@pytest.mark.parametrize("name", ["web", "worker", "broker"])
def test_a_child_that_is_killed_is_started_again(appliance: Appliance, name: str) -> None:
    before = appliance.children()
    banners = appliance.said().count("is ready.")
    os.kill(before[name], signal.SIGKILL)
    processes.wait_until(
        lambda: appliance.said().count("is ready.") > banners, 120, f"{name} once more"
    )
    after = appliance.children()
    assert after.keys() == before.keys()
    assert {each for each in before if before[each] != after[each]} == {name}
    assert f"serve | {name} ended with SIGKILL" in appliance.log()


def test_a_second_serve_and_doctor_say_who_is_there(appliance: Appliance) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "appliance", *arguments, "--data", str(appliance.data)],
            cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    assert appliance.process is not None
    second = run("serve")
    assert second.returncode == 1
    assert f"process {appliance.process.pid}, Kafka on 127.0.0.1:{appliance.kafka[1]}" in (
        second.stderr
    )
    doctor = run("doctor", "--format", "json")  # it looks at the broker of the serve that it finds
    found = {row["check"]: row for row in json.loads(doctor.stdout)["data"]}
    assert (found["web"]["status"], found["worker"]["status"]) == ("OK", "OK")
    assert found["beat"]["status"] == "OK"
    assert found[f"port {appliance.kafka[1]}"]["status"] == "OK"
    assert found["advertised by broker 1"]["status"] == "OK"
    assert appliance.data.stat().st_mode & 0o777 == 0o700
    for path in appliance.data.glob("odradek.db*"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_killed_supervisor_and_a_start_at_once_leave_one_of_each(tmp_path: Path) -> None:
    one = Appliance(tmp_path / "data").start()
    second = Appliance(one.data)
    second.kafka, second.web = one.kafka, one.web
    try:
        first = one.children()
        assert set(first) == {"broker", "worker", "web"}
        one.stop(signal.SIGKILL)
        second.start()
        assert all(map(is_gone, first.values()))
        assert set(second.children()) == {"broker", "worker", "web"}
        assert "still stops, waiting" in second.log()
        assert second.stop() == 0
        assert list(second.data.glob("logs/.kafka_cleanshutdown"))
    finally:
        one.close()
        second.close()


def test_web_is_there_before_the_broker_and_all_stop_in_order(tmp_path: Path) -> None:
    """The broker is held while it starts: web does not wait. Then all stop, the broker last."""
    one = Appliance(tmp_path / "data", settings={"ODRADEK_ADMIN_PASSWORD": PASSWORD})
    one.launch()
    try:
        processes.wait_until(lambda: (one.data / "metadata").exists(), 60, "the broker's start")
        broker = one.children()["broker"]
        os.kill(broker, signal.SIGSTOP)
        processes.wait_until(lambda: "dashboard shows how far" in one.said(), 120, "the dashboard")
        assert one.get("/healthz").status_code == 200
        answer = one.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        os.kill(broker, signal.SIGCONT)
        processes.wait_until(lambda: one.get("/readyz").status_code == 200, 60, "the broker")
        assert not (one.data / "initial-admin-password").exists()
        assert "Sign in" not in one.said()
        assert one.stop() == 0
        assert re.findall(r"serve \| stopping (\w+)", one.log()) == ["web", "worker", "broker"]
    finally:
        one.close()


def test_a_taken_web_port_costs_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    one = Appliance(tmp_path / "data")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", one.web))
        taken.listen()
        one.launch()
        assert one.process is not None
        assert one.process.wait(60) == 1
    assert one.log().startswith(f"error: port {one.web} on 127.0.0.1 is in use by another program")
    assert not one.data.exists()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"layout": 2, "version": "9.0"}', "was written by Odradek 9.0, which is newer"),
        ('{"layout": 0, "version": "0.0.1"}', "was written by Odradek 0.0.1, which is too old"),
        ("layout 1", "cannot be understood"),
    ],
)
def test_data_of_another_version_costs_one_line(document: str, words: str, tmp_path: Path) -> None:
    one = Appliance(tmp_path / "data")
    one.data.mkdir()
    (one.data / "odradek.json").write_text(document)
    one.launch()
    assert one.process is not None
    assert one.process.wait(60) == 1
    assert words in one.log()
    assert "Traceback" not in one.log()
    assert not (one.data / "logs").exists()


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("is_used", [False, True], ids=["empty", "used"])
def test_a_read_only_disk_costs_one_line(is_used: bool, tmp_path: Path) -> None:
    """In a mount namespace of its own, which is gone with the process."""
    data = tmp_path / "disk" / "data"
    data.mkdir(parents=True)
    if is_used:
        (data / "odradek.json").write_text('{"layout": 1, "version": "0.1"}')
        (data / "serve.lock").touch()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", data.parent,
         sys.executable, "-m", "appliance", "serve", "--data", data,
         "--listen", f"127.0.0.1:{judge.free_port()}", "--web", f"127.0.0.1:{judge.free_port()}"],
        cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot write to the data directory {data}"), done.stderr
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


class Terminal:
    """A pseudo-terminal, and what was written to it."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        self.text = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 4096):
                self.text += data.decode()

    def close(self) -> None:
        os.close(self.theirs)
        self._thread.join(10)
        os.close(self._ours)


def test_on_a_terminal_the_made_password_is_printed(tmp_path: Path) -> None:
    terminal = Terminal()
    port, web = judge.free_port(), judge.free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "serve", "--data", str(tmp_path / "data"),
         "--listen", f"127.0.0.1:{port}", "--web", f"127.0.0.1:{web}"],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=terminal.theirs,
        stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        processes.wait_until(lambda: "Ctrl-C stops it" in terminal.text, 180, "the banner")
        password = (tmp_path / "data" / "initial-admin-password").read_text().strip()
        assert f"  Sign in    admin, password {password}" in terminal.text
        # Ctrl-C of a terminal goes to the supervisor alone: its children are not of its group.
        assert processes.end(process, signal.SIGINT, 90) == 0
    finally:
        processes.end(process, signal.SIGKILL, 10)
        terminal.close()
