"""A Debian without Python, Java or anything that is ours, as the root directory of others.

Made by debootstrap, once, into `.cache/debian-root`, and never written to.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import pytest

from tests.support import judge, namespaces, processes
from tests.support.odradek import REPOSITORY

ROOT = REPOSITORY / ".cache" / "debian-root"
JAVA = REPOSITORY / ".cache" / "debian-java"
_T = TypeVar("_T")


def require_root() -> Path:
    """The directory, or the end of this test with a reason."""
    if os.geteuid() != 0:
        pytest.skip("only root can change its root directory")
    debootstrap = judge.program("debootstrap", "it makes a Debian of its own to try things on")
    ROOT.parent.mkdir(exist_ok=True)
    with ROOT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (ROOT / "etc" / "debian_version").exists():
            aside = ROOT.with_suffix(".new")
            shutil.rmtree(aside, ignore_errors=True)
            subprocess.run(
                [debootstrap, "--variant=minbase", "bookworm", aside, *_mirror()],
                check=True, capture_output=True,
            )  # fmt: skip
            aside.rename(ROOT)
        # As its installer leaves it; PySpark looks for itself by name.
        (ROOT / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    assert not list((ROOT / "usr" / "bin").glob("python*"))
    return ROOT


def _mirror() -> list[str]:
    """Where this machine's own Debian comes from, if it says so."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if sources.exists():
        for line in sources.read_text().splitlines():
            if line.startswith("URIs:"):
                return [line.split()[1]]
    return []


_START = """
set -e
ip link set lo up
if [ -n "$4" ]; then
    mount -t tmpfs tmpfs "$4"
    mkdir "$4/upper" "$4/work" "$4/root"
    mount -t overlay -o "lowerdir=$1,upperdir=$4/upper,workdir=$4/work" overlay "$4/root"
    set -- "$4/root" "$2" "$3"
else
    mount --bind "$1" "$1"
    mount -o remount,ro,bind "$1"
fi
mount --bind "$2" "$1/mnt"
[ -z "$3" ] || mount --bind "$3" "$1/mnt/java"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot "$1" env -C /mnt sleep infinity
"""


class Guest:
    """That Debian as it runs: a network of its own, where only loopback is, and a root that cannot be written to but
    for /mnt, which is `work`. `java` is bound to /mnt/java, and on the path. With `is_writable` all can be written to, and
    is forgotten. Nothing of it outlives the `with`."""

    def __init__(self, work: Path, java: Path | None = None, *, is_writable: bool = False) -> None:
        self.work = work
        work.mkdir()
        self.path = "/mnt:/usr/bin:/bin:/usr/sbin:/sbin"
        if java is not None:
            (work / "java").mkdir()
            self.path += ":/mnt/java/bin"
        aside: Path | str = ""
        if is_writable:
            aside = work.with_name(work.name + ".root")
            aside.mkdir()
        self._process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _START,
             "sh", require_root(), work, java or "", aside],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            processes.wait_until(
                lambda: self._process.poll() is not None or self._is_up(), 60, "the Debian"
            )
        except TimeoutError:
            self._process.kill()
            raise
        assert self._process.stdout is not None
        assert self._process.poll() is None, self._process.stdout.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _is_up(self) -> bool:
        children = self._children()
        with contextlib.suppress(OSError):
            return bool(children) and Path(f"/proc/{children[0]}/comm").read_text() == "sleep\n"
        return False

    def _children(self) -> list[str]:
        pid = self._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    @property
    def pid(self) -> int:
        """Of its process 1, seen from here."""
        return int(self._children()[0])

    def command(self, *words: str) -> list[str]:
        """What runs these words there, as a program of this machine."""
        return [
            *("nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--root", "--wd"),
            *("/usr/bin/env", "-i", f"PATH={self.path}", "HOME=/mnt/home", *words),
        ]

    def run(self, *words: str, text: str = "", status: int = 0, seconds: float = 200) -> str:
        """What it wrote; complaints only where it is to fail."""
        done = subprocess.run(
            self.command(*words), input=text, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == status, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if status else "")

    def in_its_network(self, work: Callable[[], _T]) -> _T:
        """`work` in a thread that is in the guest's network: what clients of ours see from there."""
        return namespaces.in_network_of(self.pid, work)


def require_java() -> Path:
    """This machine's Java, copied once so that it runs there, or the end of this test with a reason."""
    program = Path(judge.program("java", "Spark runs on it")).resolve()
    with JAVA.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not JAVA.exists():
            aside = JAVA.with_suffix(".new")
            shutil.rmtree(aside, ignore_errors=True)
            # Its settings are links into /etc.
            shutil.copytree(
                program.parents[1],
                aside,
                ignore=shutil.ignore_patterns("jmods", "docs", "man", "include", "src.zip"),
                ignore_dangling_symlinks=True,
            )
            aside.rename(JAVA)
    return JAVA
