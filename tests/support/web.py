"""The web process as people meet it: a child process on a free port, with users of every role."""

import atexit
import functools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support import judge, processes
from tests.support.django_scripts import DjangoScripts

REPOSITORY = Path(__file__).resolve().parents[2]
PASSWORD = "correct-horse-9"
USERS = {"ada": "admin", "olga": "operator", "vera": "viewer"}
DATABASE = "odradek.db"
AS_SHIPPED = {"refresh_s": "10"}
"""For who measures; others are told sooner what was done outside."""
_MAKE_TABLES = """
from django.core.management import call_command
call_command("migrate", verbosity=0, interactive=False)
"""
_MAKE_USERS = """
import json, sys
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from dashboard.models import User
found = {}
for name, role in json.loads(sys.argv[1]).items():
    user = User.objects.filter(username=name).first()  # of an earlier run on this directory
    user = user or User.objects.create_user(name, password=sys.argv[2], role=role)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    found[name] = session.session_key
print(json.dumps(found))
"""
_MAKE_USER = """
import json, sys
from dashboard.models import User
name, fields = sys.argv[1], json.loads(sys.argv[2])
user = User.objects.create_user(name, **fields)
"""
_SIGN_IN = """
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(session.session_key)
"""


@functools.cache
def filled() -> tuple[Path, dict[str, str]]:
    """A data directory with all tables and the people of USERS, and the sessions of these.

    Made once a run and then copied: making tables takes longer than starting.
    """
    directory = Path(tempfile.mkdtemp(prefix="odradek-tables-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    web = WebProcess(directory, "127.0.0.1:1", data=directory)
    try:
        made = web.run_python(_MAKE_TABLES + _MAKE_USERS, json.dumps(USERS), PASSWORD)
    finally:
        web.close()
    with closing(sqlite3.connect(directory / DATABASE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return directory, json.loads(made)


class WebProcess:
    """`python -m appliance.web` beside a broker: `bootstrap` is the cluster that it shows.

    `sessions` holds a signed-in session of each of USERS, so that a test need not sign in. The tables
    are a copy of those of `filled`, unless there are some, or the database is another.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
        *,
        data: Path | None = None,
    ) -> None:
        self.directory = directory
        self.data = data or directory / "data"
        self.output = directory / "web.txt"
        self.port = judge.free_port()
        self.root_path = (settings or {}).get("root_path", "")
        self.has_own_tables = "database_url" in (settings or {})
        self.environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "appliance.settings",
            "ODRADEK_DATA": str(self.data),
            "ODRADEK_WEB": f"127.0.0.1:{self.port}",
            "ODRADEK_CLUSTER": bootstrap,
            "ODRADEK_REFRESH_S": "1",
            **{f"ODRADEK_{name.upper()}": value for name, value in (settings or {}).items()},
        }
        self.sessions: dict[str, str] = {}
        self.cookie_name = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._scripts: DjangoScripts | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.root_path}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        self.data.mkdir(parents=True, exist_ok=True)
        if not self.has_own_tables and not (self.data / DATABASE).exists():
            self._copy_tables()
        with self.output.open("ab") as output:
            self.process = process = subprocess.Popen(
                [sys.executable, "-m", "appliance.web"],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
            )
        try:
            processes.wait_until(
                lambda: process.poll() is not None or self._answers(),
                180,
                "the dashboard's first page",
            )
            assert process.poll() is None, f"the web process ended:\n{processes.tail(self.output)}"
            if not self.sessions:
                self._make_users()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        if self._scripts is not None:
            self._scripts.close()
            self._scripts = None
        if self.process is not None:
            processes.end(self.process, signal.SIGTERM, 20)
            self.process = None

    def run_python(self, code: str, *arguments: str, timeout: float = 60) -> str:
        """Run a script with this appliance's Django; its output."""
        if self._scripts is None:
            self._scripts = DjangoScripts(self.environment, REPOSITORY)
        return self._scripts.run(code, arguments, timeout)

    def client(self, user: str | None = "ada", **options: Any) -> httpx.Client:
        """An HTTP client that is signed in as this user; forms need `csrf_token`."""
        cookies = {self.cookie_name: self.sessions[user]} if user else {}
        return httpx.Client(base_url=self.url, cookies=cookies, timeout=30, **options)

    def add_user(self, name: str, **fields: Any) -> None:
        """Somebody of a test's own, signed in: ``client`` and ``Visitor`` know them by the name."""
        code = _MAKE_USER + _SIGN_IN
        self.sessions[name] = self.run_python(code, name, json.dumps(fields)).strip()

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/login/", timeout=5)
        except httpx.TransportError:
            return False
        for name in answer.cookies:
            self.cookie_name = name.removesuffix("_csrf")
        return answer.status_code == 200

    def _copy_tables(self) -> None:
        """With the key that sessions are signed by."""
        directory, sessions = filled()
        self.sessions = dict(sessions)
        for name in (DATABASE, "secret_key"):
            shutil.copy2(directory / name, self.data / name)

    def _make_users(self) -> None:
        self.sessions = json.loads(self.run_python(_MAKE_USERS, json.dumps(USERS), PASSWORD))


def post(client: httpx.Client, path: str, data: Mapping[str, Any]) -> httpx.Response:
    """Send a form as a browser would: with the token of a page that was loaded before."""
    client.get("account/password/")
    token = next(value for name, value in client.cookies.items() if name.endswith("_csrf"))
    return client.post(path, data={**data, "csrfmiddlewaretoken": token}, follow_redirects=True)
