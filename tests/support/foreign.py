"""Clients of other languages as judges: small programs of ours (tests/support/judges) around them.

They are built once into `.cache/judges`; `require()` gives a program's command, or ends the test
with a reason (judge.py). All programs take the same flags, and speak records and events as JSON
lines (judges/golang/lines/lines.go says which).
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support import judge
from tests.support.clients import Message

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).with_name("judges")
CACHE = Path(os.environ.get("ODRADEK_JUDGES") or REPOSITORY / ".cache" / "judges")
GO_PROGRAMS = ("franz-go", "sarama", "kafka-go", "copy-job", "group-member")
#: franz-go's own tests, and the program that they are compiled to.
FRANZ_GO_TESTS, FRANZ_GO_TEST = "github.com/twmb/franz-go/pkg/kgo", "franz-go.test"
TIMEOUT = 60
_making = threading.Lock()


def _stamp(source: Path) -> str:
    """A name for the present state of the sources: a changed program is built anew."""
    found = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file() and "node_modules" not in path.parts:
            found.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def _run(command: Sequence[object], directory: Path) -> None:
    done = subprocess.run(
        list(map(str, command)),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=900,
    )
    if done.returncode:
        raise OSError((done.stderr + done.stdout).decode(errors="replace")[-2000:])


def _build_go(source: Path, made: Path) -> None:
    _run([go(), "build", "-o", f"{made}/", "./..."], source)
    _run([go(), "test", "-c", "-o", made / FRANZ_GO_TEST, FRANZ_GO_TESTS], source)


def _install_node(source: Path, made: Path) -> None:
    shutil.copytree(source, made, dirs_exist_ok=True)
    _run([shutil.which("npm") or "npm", "ci", "--no-audit", "--no-fund"], made)


def built(name: str, build: Callable[[Path, Path], None]) -> Path:
    """The directory of what ``build(sources, directory)`` makes of judges/NAME, once."""
    source = SOURCES / name
    with _making:
        directory = CACHE / f"{name}-{_stamp(source)}"
        if not directory.is_dir():
            CACHE.mkdir(parents=True, exist_ok=True)
            partial = directory.with_name(f"{directory.name}.{os.getpid()}.partial")
            partial.mkdir()
            try:
                build(source, partial)
                partial.rename(directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return directory


def go() -> str | None:
    for found in (shutil.which("go"), "/usr/local/go/bin/go"):
        if found and os.access(found, os.X_OK):
            return found
    return None


def build_go() -> Path:
    return built("golang", _build_go)


def franz_go_directory() -> Path:
    """Where its tests expect to be run."""
    command = [go() or "go", "list", "-f", "{{.Dir}}", FRANZ_GO_TESTS]
    done = subprocess.run(
        command, cwd=SOURCES / "golang", capture_output=True, text=True, check=True, timeout=60
    )
    return Path(done.stdout.strip())


def install_kafkajs() -> Path:
    return built("kafkajs", _install_node)


def require(name: str) -> list[str]:
    """The command of a judge's program, or the end of this test with a reason."""
    try:
        if name in (*GO_PROGRAMS, FRANZ_GO_TEST):
            if go() is None:
                judge.missing(f"Go builds the program around {name}")
            return [str(build_go() / name)]
        if name == "kafkajs":
            node = judge.program("node", "Node.js runs kafkajs")
            judge.program("npm", "npm installs kafkajs")
            return [node, str(install_kafkajs() / "judge.js")]
    except (OSError, subprocess.SubprocessError) as error:
        judge.missing(f"{name} could not be built: {error}")
    return [sys.executable, "-m", "tests.support.judges.python_members", name]


# -------------------------------------------------------------------------- records as JSON lines


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def to_line(message: Message, **more: Any) -> str:
    return json.dumps(
        {
            "key": _text(message.key),
            "value": _text(message.value),
            "timestamp": message.timestamp,
            "headers": [{"name": name, "value": _text(value)} for name, value in message.headers],
            **more,
        }
    )


def from_line(found: dict[str, Any]) -> Message:
    return Message(
        _bytes(found["value"]),
        _bytes(found["key"]),
        found["timestamp"],
        tuple((header["name"], _bytes(header["value"])) for header in found["headers"] or ()),
        found["offset"],
    )


class ForeignClient:
    """A program behind the face of tests/support/clients.py, as far as it goes."""

    def __init__(
        self, name: str, *, reads_in_groups: bool = False, null_headers: bool = True
    ) -> None:
        self.name = name
        self.reads_in_groups = reads_in_groups
        self.null_headers = null_headers

    def run(self, command: str, *flags: object, stdin: str = "") -> list[dict[str, Any]]:
        done = subprocess.run(
            [*require(self.name), command, *map(str, flags)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{self.name} {command}: {done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
        acks: str | int = "all",
        more: Sequence[str] = (),
    ) -> list[int]:
        flags = ["-bootstrap", bootstrap, "-topic", topic, "-partition", partition]
        flags += ["-codec", codec, "-acks", acks]
        if idempotent:
            flags.append("-idempotent")
        return self._write([*flags, *more], [to_line(message) for message in messages])

    def write_each(
        self, bootstrap: str, topics: Sequence[str], message: Message, *more: str
    ) -> list[int]:
        """One record to each topic."""
        flags = ["-bootstrap", bootstrap, *more]
        return self._write(flags, [to_line(message, topic=topic) for topic in topics])

    def _write(self, flags: Sequence[object], lines: Sequence[str]) -> list[int]:
        told = self.run("produce", *self._spelt(flags), stdin="\n".join(lines) + "\n")
        return [found["offset"] for found in told]

    def read(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        start: int = 0,
        more: Sequence[str] = (),
    ) -> list[Message]:
        flags = ["-bootstrap", bootstrap, "-topic", topic, "-partition", partition]
        flags += ["-start", start, "-count", count, *more]
        return [from_line(found) for found in self.run("fetch", *self._spelt(flags))]

    def _spelt(self, flags: Sequence[object]) -> list[str]:
        """Node wants two dashes where Go takes one or two."""
        return [
            f"-{flag}" if isinstance(flag, str) and flag.startswith("-") else str(flag)
            for flag in flags
        ]


ALL = (
    ForeignClient("franz-go"),
    ForeignClient("sarama"),
    ForeignClient("kafka-go"),
    ForeignClient("kafkajs", reads_in_groups=True),
)


if __name__ == "__main__":
    if go() is not None:
        print(build_go())
    if shutil.which("npm"):
        print(install_kafkajs())
