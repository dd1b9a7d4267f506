"""The Debian package: installed, served, upgraded, removed and purged on a Debian of its own; and what its scripts ask of systemd.

Slow tests want `make deb`; there is no systemd in that Debian, so the unit's own words say how the service is started, and
a program that writes down what it is told stands in for systemctl.
"""

import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import debian, processes
from tests.support.odradek import REPOSITORY

BUILD = REPOSITORY / "packaging" / "debian" / "build.py"
build = runpy.run_path(str(BUILD))
UNIT = REPOSITORY / "packaging" / "odradek.service"
PACKAGES = sorted((REPOSITORY / "dist").glob("odradek_*.deb"))
needs_package = pytest.mark.skipif(not PACKAGES, reason="there is no dist/odradek_*.deb (make deb)")
SYSTEMCTL = """#!/bin/sh
echo "$*" >> /mnt/asked
"""


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.2.3", "1.2.3"),
        ("1.0rc1", "1.0~rc1"),
        ("0.1.0a2", "0.1.0~a2"),
        ("0.2.0.dev3", "0.2.0~dev3"),
    ],
)
def test_a_version_before_a_release_sorts_before_it(version: str, expected: str) -> None:
    assert build["debian_version"](version) == expected


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_understands_the_packages_unit(tmp_path: Path) -> None:
    unit = tmp_path / "odradek.service"
    unit.write_text(build["unit"](UNIT.read_text()).replace("/usr/bin/odradek", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "odradek.service" not in done.stderr


def test_a_unit_that_has_changed_its_paths_is_refused() -> None:
    text = UNIT.read_text().replace("/opt/odradek/bin/odradek", "/srv/odradek")
    with pytest.raises(SystemExit, match="has not once: ExecStart"):
        build["unit"](text)


@pytest.mark.parametrize("script", build["SCRIPTS"])
def test_the_scripts_are_read_by_a_shell_of_debian(script: str) -> None:
    subprocess.run(["sh", "-n", REPOSITORY / "packaging" / "debian" / script], check=True)


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[debian.Guest]:
    with debian.Guest(tmp_path / "work", is_writable=True) as guest:
        shutil.copy2(PACKAGES[-1], guest.work / "odradek.deb")
        yield guest


def of_unit(guest: debian.Guest, key: str) -> str:
    unit = guest.run("cat", "/lib/systemd/system/odradek.service")
    (found,) = re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)
    return str(found)


class Service:
    """What systemd would start, from the unit's and /etc/default/odradek's words, as the unit's user."""

    def __init__(self, guest: debian.Guest, log: Path) -> None:
        user = of_unit(guest, "User")
        options = [*shlex.split(of_unit(guest, "Environment")), "LC_ALL=C.UTF-8"]
        options += [
            line
            for line in guest.run(
                "cat", of_unit(guest, "EnvironmentFile").removeprefix("-")
            ).splitlines()
            if re.match(r"\w+=", line)
        ]
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                guest.command(
                    *("setpriv", "--reuid", user, "--regid", of_unit(guest, "Group")),
                    *("--init-groups", "--no-new-privs"),
                    *("env", "-i", "-C", of_unit(guest, "WorkingDirectory"), *options),
                    *shlex.split(of_unit(guest, "ExecStart")),
                ),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def __enter__(self) -> None:
        processes.wait_until(
            lambda: self._process.poll() is not None or "is ready" in self._log.read_text(),
            180,
            "the start",
        )
        assert self._process.poll() is None, self._log.read_text()

    def __exit__(self, *_: object) -> None:
        pid = self._process.pid  # of nsenter, which waits for what it has started
        (service,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(service), signal.SIGTERM)
        try:
            assert self._process.wait(90) == 0, self._log.read_text()
        finally:
            self._process.kill()


@pytest.mark.slow
@needs_package
def test_installed_it_serves_removed_it_keeps_data_and_purged_nothing(
    guest: debian.Guest, tmp_path: Path
) -> None:
    guest.run("dpkg", "-i", "/mnt/odradek.deb")
    assert guest.run("dpkg", "-V", "odradek") == ""
    assert guest.run("stat", "-c", "%U %a", "/var/lib/odradek").split() == ["odradek", "750"]
    at = ("-b", "127.0.0.1:19092")
    guest.run("sh", "-c", "echo ODRADEK_LISTEN=127.0.0.1:19092 >> /etc/default/odradek")
    with Service(guest, tmp_path / "first.txt"):
        guest.run("odradek", "topic", "create", "orders", *at)
        guest.run("odradek", "produce", "orders", *at, text="kept\n")
    assert guest.run("test", "-s", "/var/lib/odradek/initial-admin-password") == ""

    guest.run("dpkg", "-r", "odradek")
    guest.run("test", "!", "-e", "/usr/bin/odradek")
    guest.run("test", "!", "-e", "/var/cache/odradek")
    guest.run("test", "-d", "/var/lib/odradek/logs")

    guest.run("dpkg", "-i", "/mnt/odradek.deb")
    with Service(guest, tmp_path / "second.txt"):
        assert "kept" in guest.run("odradek", "consume", "orders", *at, "-o", "start", "-e")

    guest.run("dpkg", "-P", "odradek")
    for gone in (
        "/var/lib/odradek",
        "/var/cache/odradek",
        "/etc/default/odradek",
        "/usr/bin/odradek",
    ):
        guest.run("test", "!", "-e", gone)
    guest.run("getent", "passwd", "odradek", status=2)


@pytest.mark.slow
@needs_package
def test_systemd_is_asked_to_start_restart_and_stop_it(guest: debian.Guest) -> None:
    (guest.work / "systemctl").write_text(SYSTEMCTL)
    (guest.work / "systemctl").chmod(0o755)
    guest.run("cp", "/mnt/systemctl", "/usr/bin/systemctl")
    guest.run("mkdir", "-p", "/run/systemd/system")

    def asked() -> list[str]:
        told = guest.work / "asked"
        lines = told.read_text().splitlines() if told.exists() else []
        told.unlink(missing_ok=True)
        return lines

    guest.run("dpkg", "-i", "/mnt/odradek.deb")
    assert asked() == ["daemon-reload", "enable --now odradek"]
    guest.run("dpkg", "-i", "/mnt/odradek.deb")  # an upgrade to the same version
    assert asked() == ["daemon-reload", "is-enabled --quiet odradek", "restart odradek"]
    guest.run("dpkg", "-r", "odradek")
    assert asked() == ["stop odradek", "daemon-reload"]
    guest.run("dpkg", "-i", "/mnt/odradek.deb")  # after a removal that kept the settings
    assert asked() == ["daemon-reload", "is-enabled --quiet odradek", "restart odradek"]
    guest.run("dpkg", "-P", "odradek")
    assert asked() == ["stop odradek", "daemon-reload"]
