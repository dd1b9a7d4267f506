"""The single executable as a file: stub.c's program, one archive or two, and a trailer that tells where they are.

An archive is a tree (zstd around entries that stub.c explains), named by the hash of what it unpacks to. The first
carries Odradek. The second, which with_spark.py puts behind it, carries Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

MAGIC: Final = b"ODRADEK2"
HASH_LENGTH: Final = 32
_PART: Final = struct.Struct(f"<QQ{HASH_LENGTH}s")
TRAILER_SIZE: Final = 2 * _PART.size + len(MAGIC)


@dataclass(frozen=True, slots=True)
class Part:
    offset: int
    size: int
    name: bytes


NOTHING: Final = Part(0, 0, b"")


def run(*command: str | Path) -> str:
    words = [str(each) for each in command]
    done = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def write(output: Path, program: bytes, root: Path, level: int) -> None:
    """An executable of ``program`` with what is below ``root``."""
    with Aside(output) as file:
        file.write(program)
        _finish(file, pack(file, root, level), NOTHING)


def extend(source: Path, root: Path, level: int, output: Path) -> None:
    """The executable ``source`` once more, with a second archive of what is below ``root``."""
    with source.open("rb") as whole, Aside(output) as file:
        whole.seek(-TRAILER_SIZE, os.SEEK_END)
        trailer = whole.read()
        if not trailer.endswith(MAGIC):
            raise SystemExit(f"{source} is no executable of build.py")
        first = Part(*_PART.unpack_from(trailer, _PART.size))
        whole.seek(0)
        shutil.copyfileobj(whole, file)
        file.seek(first.offset + first.size)
        file.truncate()
        _finish(file, first, pack(file, root, level))


def _finish(file: BinaryIO, first: Part, second: Part) -> None:
    for part in (second, first):
        file.write(_PART.pack(part.offset, part.size, part.name))
    file.write(MAGIC)


def pack(file: BinaryIO, root: Path, level: int) -> Part:
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(
            level, write_checksum=True, threads=-1, enable_ldm=True, window_log=26
        )
    )
    digest = hashlib.sha256()
    offset = file.tell()
    with compressor.stream_writer(file, closefd=False) as packed:
        for piece in _entries(root):
            digest.update(piece)
            packed.write(piece)
    return Part(offset, file.tell() - offset, digest.hexdigest()[:HASH_LENGTH].encode())


def _entries(root: Path) -> Iterator[bytes]:
    """The archive, piece by piece, the same for the same tree."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root)).encode()
        if path.is_symlink():
            target = os.readlink(path).encode()
            yield _head(b"l", 0, name, len(target)) + target
        elif path.is_dir():
            yield _head(b"d", 0o755, name, 0)
        else:
            content = path.read_bytes()
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            yield _head(b"f", mode, name, len(content))
            yield content
    yield _head(b"e", 0, b"", 0)


def _head(kind: bytes, mode: int, name: bytes, size: int) -> bytes:
    return kind + struct.pack("<IIQ", mode, len(name), size) + name


class Aside:
    """A file that gets its name when it is whole."""

    def __init__(self, output: Path) -> None:
        self._output = output.resolve()
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._aside = self._output.with_name(self._output.name + ".new")

    def __enter__(self) -> BinaryIO:
        self._file = self._aside.open("wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is not None:
            self._aside.unlink()
            return
        self._aside.chmod(0o755)
        self._aside.replace(self._output)


def compile_sources(root: Path, below: Path) -> None:
    """Bytecode that is not compared with its sources' times, which an unpacking does not keep."""
    run(
        *(sys.executable, "-m", "compileall", "-q", "-j", "0"),
        *("--invalidation-mode", "unchecked-hash", "-s", root, "-p", "odradek", below),
    )


def told(output: Path, root: Path) -> str:
    unpacked = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    size = output.stat().st_size
    return f"{output}: {size / 1e6:.1f} MB, unpacks to {unpacked / 1e6:.0f} MB\n"
