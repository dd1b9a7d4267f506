"""A Debian without Python, Java or anything that is ours, as the root directory of others.

Made by debootstrap, once, into `.cache/debian-root`, and never written to.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import judge
from tests.support.odradek import REPOSITORY

ROOT = REPOSITORY / ".cache" / "debian-root"


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
