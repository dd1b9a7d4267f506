"""A PostgreSQL of one test: made by initdb in a directory, on a loopback port, gone afterwards."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import judge, processes

USER = "odradek"


class Postgres:
    """One server. `stop` and `start` as often as a test likes; its data stays."""

    def __init__(
        self,
        directory: Path,
        programs: Path,
        home: Path,
        account: int | None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.host, self.port = host, port or judge.free_port()
        self.url = f"postgres://{USER}@{host}:{self.port}/postgres"
        self._output = directory / "postgres.txt"
        self._programs, self._home, self._account = programs, home, account
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        subprocess.run(
            [self._programs / "initdb", "-D", self._home / "data", "-U", USER, "-A", "trust",
             "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, user=self._account, cwd="/", timeout=120,
        )  # fmt: skip

    def make_like_image(self, user: str, password: str) -> None:
        """As the image `postgres` does at its first start: passwords are asked for over the network alone."""
        secret = self._home / "password"
        secret.write_text(password)
        os.chown(secret, -1 if self._account is None else self._account, -1)
        subprocess.run(
            [self._programs / "initdb", "-D", self._home / "data", "-U", user, f"--pwfile={secret}",
             "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, user=self._account, cwd="/", timeout=120,
        )  # fmt: skip
        rules = self._home / "data" / "pg_hba.conf"
        rules.write_text(f"{rules.read_text()}\nhost all all all scram-sha-256\n")

    def run(self, program: str, *words: str) -> str:
        """By the socket of this machine, where nobody is asked for a password."""
        server: list[str | Path] = ["-h", self._home, "-p", str(self.port)]
        done = subprocess.run(
            [self._programs / program, *server, *words],
            check=True,
            capture_output=True,
            text=True,
            cwd="/",
        )
        return done.stdout

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._home / "data", "-p", str(self.port),
                 "-h", self.host, "-k", self._home, "-c", "fsync=off"],
                stdout=output, stderr=output, user=self._account, cwd="/",
            )  # fmt: skip
        ready = [self._programs / "pg_isready", "-h", self.host, "-p", str(self.port), "-q"]
        processes.wait_until(
            lambda: subprocess.run(ready, check=False).returncode == 0, 60, "PostgreSQL"
        )

    def stop(self) -> None:
        """At once, with all its connections."""
        if self._process is not None:
            processes.end(self._process, signal.SIGINT, 30)
            self._process = None


def programs() -> Path:
    """The directory of PostgreSQL's programs, or the end of this test with a reason."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found:
        judge.missing("PostgreSQL is not installed (Debian: postgresql)")
    return Path(found[-1])


@contextmanager
def unmade(directory: Path, host: str = "127.0.0.1", port: int = 0) -> Iterator[Postgres]:
    """Nothing is there yet. It refuses to run as root, so it runs as the user ``postgres`` then."""
    found = programs()
    account = _account()
    # Not below pytest's directories: another user could not reach them.
    home = Path("/tmp") / f"odradek-postgres-{os.getpid()}-{directory.name}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    if account is not None:
        os.chown(home, account, -1)
    one = Postgres(directory, found, home, account, host, port)
    try:
        yield one
    finally:
        one.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def server(directory: Path) -> Iterator[Postgres]:
    """Started."""
    with unmade(directory) as one:
        one.make()
        one.start()
        yield one


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """The address of a started server, as a URL."""
    with server(directory) as one:
        yield one.url


def _account() -> int | None:
    """Whom to run it as; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_uid
    except KeyError:
        judge.missing("there is no user postgres to run PostgreSQL as")
