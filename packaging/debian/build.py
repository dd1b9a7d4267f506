"""Builds dist/odradek_VERSION_ARCHITECTURE.deb: the single executable, as a service.

    python packaging/debian/build.py dist/odradek --output dist

Needs dpkg-deb. The unit is packaging/odradek.service with the paths of a Debian. The package depends on a C library as
new as this machine's, where the executable was built, and on nothing else; what the executable carries is
unpacked into /var/cache/odradek at the first start, as the service's user.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
CLONE: Final = HERE.parents[1]
SCRIPTS: Final = ("postinst", "prerm", "postrm")
CONFFILE: Final = "etc/default/odradek"
#: What of the unit is another place here.
_PLACES: Final = (
    ("EnvironmentFile=-/etc/odradek/odradek.env", f"EnvironmentFile=-/{CONFFILE}"),
    ("ExecStart=/opt/odradek/bin/odradek serve", "ExecStart=/usr/bin/odradek serve"),
    (
        "Environment=ODRADEK_DATA=/var/lib/odradek PYTHONDONTWRITEBYTECODE=1",
        "Environment=ODRADEK_DATA=/var/lib/odradek ODRADEK_CACHE=/var/cache/odradek",
    ),
    (
        "StateDirectory=odradek\n",
        "StateDirectory=odradek\nCacheDirectory=odradek\nCacheDirectoryMode=0700\n",
    ),
)


def unit(text: str) -> str:
    """packaging/odradek.service as the package has it."""
    for of_clone, of_package in _PLACES:
        if text.count(of_clone) != 1:
            raise SystemExit(f"packaging/odradek.service has not once: {of_clone}")
        text = text.replace(of_clone, of_package)
    head, _, rest = text.partition("\n[Unit]\n")
    if not all(line.startswith("#") for line in head.splitlines()):
        raise SystemExit("packaging/odradek.service does not begin with how it is set up")
    return f"# Options stand in /{CONFFILE}.\n\n[Unit]\n{rest}"


def debian_version(version: str) -> str:
    """1.0rc1 is before 1.0, which Debian writes as 1.0~rc1."""
    return re.sub(r"(?<=\d)\.?(a|b|rc|dev)(?=\d)", r"~\1", version)


def control(version: str, architecture: str, size_kib: int) -> str:
    library, needed = platform.libc_ver()
    if library != "glibc":
        raise SystemExit("the C library of this machine tells no version that Debian compares")
    return f"""\
Package: odradek
Version: {version}
Architecture: {architecture}
Maintainer: Odradek <odradek@localhost>
Installed-Size: {size_kib}
Depends: libc6 (>= {needed}), passwd
Suggests: default-jre-headless (>= 2:1.17)
Section: net
Priority: optional
Description: log that Kafka clients write to and read from, with a dashboard
 Odradek speaks the wire protocol of Apache Kafka and brings its own web pages:
 topics, records, consumer groups, retention, reports. One executable carries
 all of it; reports also need a Java runtime of version 17 or newer.
"""


def build(executable: Path, output: Path, version: str) -> Path:
    """Directories get 0755 and files the mode that they are put with, whatever this user's umask is."""
    os.umask(0o022)
    architecture = _run("dpkg", "--print-architecture").strip()
    version = debian_version(version)
    output.mkdir(parents=True, exist_ok=True)
    package = output / f"odradek_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="odradek-deb-") as name:
        root = Path(name)
        root.chmod(0o755)
        _put(root / "usr/bin/odradek", executable.read_bytes(), 0o755)
        service = unit((CLONE / "packaging" / "odradek.service").read_text())
        _put(root / "lib/systemd/system/odradek.service", service.encode(), 0o644)
        _put(root / CONFFILE, (HERE / "default").read_bytes(), 0o644)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        size_kib = sum(-(-path.stat().st_size // 1024) for path in files)
        sums = "".join(
            f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
            f"  {path.relative_to(root)}\n"
            for path in files
            if str(path.relative_to(root)) != CONFFILE
        )
        about = root / "DEBIAN"
        _put(about / "control", control(version, architecture, size_kib).encode(), 0o644)
        _put(about / "conffiles", f"/{CONFFILE}\n".encode(), 0o644)
        _put(about / "md5sums", sums.encode(), 0o644)
        for script in SCRIPTS:
            _put(about / script, (HERE / script).read_bytes(), 0o755)
        aside = package.with_suffix(".new")
        # The executable is packed already; once more would only take time, at each installation too.
        _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(aside))
        aside.replace(package)
    return package


def _put(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise SystemExit(f"{command[0]} is not installed (Debian: dpkg)")
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("executable", type=Path)
    parser.add_argument("--output", type=Path, default=Path("dist"))
    options = parser.parse_args()
    sys.path.insert(0, str(CLONE))
    from broker import VERSION

    package = build(options.executable, options.output, VERSION)
    sys.stdout.write(f"{package}: {package.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
