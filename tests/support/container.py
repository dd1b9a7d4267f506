"""Container images, built and run without an engine: buildah builds, kernel namespaces run.

Built on a Debian of debootstrap, in place of the one that the Dockerfile would pull. What runs has the image's own
user, environment and command, a network of its own, and a root directory that cannot be written to.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support import debian, judge, namespaces, processes
from tests.support.odradek import REPOSITORY

BASE = "localhost/odradek-tests/base"
#: Whom this machine trusts, pip in the build too; not where Debian's own package would replace it.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_AUTHORITIES_THERE = "/run/authorities.crt"


def buildah(*arguments: str | Path) -> str:
    program = judge.program("buildah", "it builds container images")
    storage = REPOSITORY / ".cache" / "containers"
    command = [program, "--root", storage / "storage", "--runroot", storage / "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.strip()


class Image:
    """A target of the Dockerfile. Layers that are there already are not built again. `prepared` is a Spark that
    needs no download; without it the target with Spark downloads 460 MB, from whom this machine trusts."""

    def __init__(self, target: str, prepared: Path | None = None) -> None:
        if BASE not in buildah("images", "--format", "{{.Name}}"):
            container = buildah("from", "scratch")
            buildah("add", "--quiet", container, debian.require_root(), "/")
            buildah("commit", "--quiet", "--rm", container, BASE)
        self.name = f"localhost/odradek-tests/{target}"
        mounts = []
        if AUTHORITIES.exists():
            settings = REPOSITORY / ".cache" / "containers" / "pip.conf"
            settings.write_text(f"[global]\ncert = {_AUTHORITIES_THERE}\n")
            mounts = [
                f"--volume={AUTHORITIES}:{_AUTHORITIES_THERE}:ro",
                f"--volume={settings}:/etc/pip.conf:ro",
                f"--build-arg=SSL_CERT_FILE={_AUTHORITIES_THERE}",
            ]
        if prepared is not None:
            mounts += [f"--volume={prepared}:/run/spark:ro", "--build-arg=SPARK=/run/spark"]
        buildah(
            *("bud", "--isolation", "chroot", "--format", "docker", "--layers", "--quiet"),
            *("--pull-never", f"--build-arg=BASE={BASE}", "--build-arg=COMMIT=tests", *mounts),
            *("--target", target, "--tag", self.name, "."),
        )
        inspected = json.loads(buildah("inspect", "--type", "image", self.name))
        self.config: dict[str, Any] = inspected["Docker"]["config"]

    def __enter__(self) -> Self:
        self.container = buildah("from", "--pull-never", self.name)
        try:
            self.root = Path(buildah("mount", self.container))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        buildah("rm", self.container)

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in self.config["Env"])

    def size(self) -> int:
        files = (path.lstat() for path in self.root.rglob("*") if not path.is_dir())
        return sum({found.st_ino: found.st_size for found in files}.values())


#: Waits to be told to go on: until then it can be given a network. Rights are those of `cap_drop: [ALL]` and
#: `no-new-privileges`, which compose.yaml asks for.
_START = """
set -e
ip link set lo up
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
mount --bind "$2" "$1/data"
[ -z "$3" ] || mount --bind "$3" "$1/etc/hosts"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
read -r _
root=$1; shift 3
exec </dev/null chroot "$root" /usr/bin/setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs \
    --inh-caps=-all --bounding-set=-all /usr/bin/env -i -C /data "$@"
"""
#: What an engine waits for after SIGTERM, unless it is told otherwise, before it kills.
GRACE_S = 10.0


class Running:
    """The image's own command, as process 1. In `network` it has the address of its name, and knows the others'."""

    def __init__(
        self,
        image: Image,
        data: Path,
        environment: Mapping[str, str],
        *arguments: str,
        network: tuple[namespaces.Network, str] | None = None,
    ) -> None:
        data.mkdir()
        os.chown(data, 1000, 1000)
        self.variables = [f"{k}={v}" for k, v in (image.environment | dict(environment)).items()]
        command = [*image.config["Entrypoint"], *(arguments or image.config["Cmd"])]
        self.output = data.with_suffix(".log")
        hosts = network[0].hosts if network else ""
        with self.output.open("wb") as output:
            self._outside = subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                 _START, "sh", image.root, data, hosts, *self.variables, *command],
                stdin=subprocess.PIPE, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            processes.wait_until(lambda: bool(self._children()), 30, "process 1")
            if network:
                network[0].attach(network[1], self.pid)
            assert self._outside.stdin is not None
            self._outside.stdin.write(b"go\n")
            self._outside.stdin.close()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._outside.kill()
        self._outside.wait()

    @property
    def said(self) -> str:
        return self.output.read_text()

    def wait(self, seconds: float) -> int:
        return self._outside.wait(seconds)

    def stop(self, seconds: float = GRACE_S) -> int:
        """As an engine does, which kills it later."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(seconds)

    def await_ready(self) -> None:
        processes.wait_until(
            lambda: self._outside.poll() is not None or "is ready" in self.said, 120, "the start"
        )
        assert self._outside.poll() is None, self.said

    def _children(self) -> list[str]:
        pid = self._outside.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    @property
    def pid(self) -> int:
        """Of its process 1, seen from here."""
        (child,) = self._children()
        return int(child)

    def execute(
        self, *command: str, text: str = "", seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """As `docker exec` does."""
        return subprocess.run(
            ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--root", "--wd",
             "--setuid", "1000", "--setgid", "1000", "/usr/bin/env", "-i", *self.variables, *command],
            input=text, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
