"""Builds dist/odradek, the single executable: stub.c, and a tree with an interpreter and all packages.

    python packaging/binary/build.py --wheel dist/odradek-*.whl --output dist/odradek

Needs a C compiler, zstd's static library (Debian: libzstd-dev) and a Python with its shared library, whose standard
library and interpreter go into it. The machine it runs on later needs a C library at least as new as this one's,
and nothing else. Packages come by the lock file's hashes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import archive
import parts
from archive import run

HERE = Path(__file__).resolve().parent
CLONE = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import trimming  # noqa: E402 - what the container image leaves out too

PT_DYNAMIC, DT_RPATH, DT_RUNPATH = 2, 15, 29
#: PostgreSQL and Redis are spoken to without any more packages.
LOCKS = ("requirements.lock", "requirements-cluster.lock")
#: In the range of operating systems; nobody gives it a meaning, and loaders pass it over.
IGNORED_TAG = 0x6000_0FFF
#: Linked into it.
IN_THE_STUB = ("libzstd.a", "libc.a")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Of the standard library: what no program of ours needs, by name at any depth.
LEFT_OUT = {
    *(
        "__pycache__",
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "lib2to3",
        "ensurepip",
        "venv",
    ),
    *("pydoc_data", "site-packages", "dist-packages", "turtle.py", "distutils"),
}
LEFT_OUT_MODULES = (
    "_tkinter",
    "_test",
    "_gdbm",
    "_dbm",
    "_curses",
    "readline",
    "nis",
    "ossaudiodev",
    "xx",
    "_ctypes_test",
)
#: Parts of the C library, which are the machine's own.
OF_THE_SYSTEM = (
    "ld-linux",
    "libc.",
    "libm.",
    "libdl.",
    "libpthread.",
    "librt.",
    "libutil.",
    "libresolv.",
    "linux-vdso",
)


def copy_interpreter(root: Path) -> list[Path]:
    """The standard library, a small program around the interpreter's library, and what these need.

    Tells a file of each package that it may be of."""
    library = root / "lib" / PYTHON
    source = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(source, library, symlinks=False, ignore=_ignored)
    modules = Path(sysconfig.get_config_var("DESTSHARED"))
    if not modules.is_relative_to(source):
        shutil.copytree(modules, library / "lib-dynload", ignore=_ignored)
    shared = sysconfig.get_config_var("INSTSONAME")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not shared:
        raise SystemExit(
            "this Python has no shared library (configure --enable-shared; Debian: python3-dev)"
        )
    places = [Path(sysconfig.get_config_var(name) or "/") for name in ("LIBDIR", "LIBPL")]
    places.append(Path(sys.base_prefix) / "lib")
    found = next((place / shared for place in places if (place / shared).exists()), None)
    if found is None:
        raise SystemExit(f"{shared} is not where this Python says")
    shutil.copy(found, root / "lib" / shared)
    (root / "bin").mkdir()
    program = root / "bin" / PYTHON
    run(
        *("cc", "-O2", "-o", program, HERE / "python.c", f"-I{sysconfig.get_path('include')}"),
        *(root / "lib" / shared, "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--disable-new-dtags"),
    )
    for name in ("python3", "python"):
        (root / "bin" / name).symlink_to(PYTHON)
    # Debian's interpreters look elsewhere for packages.
    (library / "sitecustomize.py").write_text(
        "import os\nimport site\nimport sys\n\n"
        "_packages = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'site-packages')\n"
        "if _packages not in sys.path:\n    site.addsitedir(_packages)\n"
    )
    for path in [root / "lib" / shared, *library.rglob("*.so")]:
        path.chmod(0o755)
        run("strip", "--strip-unneeded", path)
    return [found, source / "os.py", source / "asyncio" / "base_events.py"]


def _ignored(directory: str, names: list[str]) -> set[str]:
    return {
        name
        for name in names
        if name in LEFT_OUT
        or name.startswith("config-")
        or name.endswith(".a")
        or ("lib-dynload" in directory and name.startswith(LEFT_OUT_MODULES))
    }


def install_packages(root: Path, wheel: Path) -> None:
    packages = root / "lib" / PYTHON / "site-packages"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    )
    locks = [word for each in LOCKS for word in ("-r", CLONE / each)]
    run(*pip, "--target", packages, "--require-hashes", *locks)
    run(*pip, "--target", packages, "--no-deps", "--no-index", wheel)
    # `odradek spark prepare` fetches with it.
    import pip as installer

    shutil.copytree(Path(installer.__file__).parent, packages / "pip", ignore=_ignored)
    trimming.trim(packages)


def copy_libraries(root: Path) -> list[Path]:
    """What the interpreter and its modules are linked to; the packages bring theirs along. Tells what it copied."""
    copied = []
    targets = [root / "bin" / PYTHON, *(root / "lib" / PYTHON).rglob("*.so")]
    for target in targets:
        for line in run("ldd", target).splitlines():
            name, arrow, place = line.strip().partition(" => ")
            path = place.split(" (")[0]
            if not arrow or name.startswith(OF_THE_SYSTEM) or not path.startswith("/"):
                continue
            if not Path(path).resolve().is_relative_to(root) and not (root / "lib" / name).exists():
                shutil.copy(Path(path).resolve(), root / "lib" / name)
                copied.append(Path(path))
    return copied


def forget_search_paths(root: Path) -> None:
    """Modules of the standard library may name directories of this machine (DT_RUNPATH), and then the
    interpreter's own path (DT_RPATH, inherited) is not looked at for what they need."""
    modules = [*(root / "lib").glob("*.so*"), *(root / "lib" / PYTHON / "lib-dynload").glob("*.so")]
    for path in modules:
        data = bytearray(path.read_bytes())
        for position in _search_paths(data):
            struct.pack_into("<q", data, position, IGNORED_TAG)
        path.write_bytes(data)


def _search_paths(data: bytearray) -> Iterator[int]:
    """Where the entries DT_RPATH and DT_RUNPATH stand in an ELF file (64 bits, little endian)."""
    if bytes(data[:6]) != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", data, 0x20)
    entry_size, count = struct.unpack_from("<HH", data, 0x36)
    for header in range(table, table + count * entry_size, entry_size):
        kind, _, offset = struct.unpack_from("<IIQ", data, header)
        (size,) = struct.unpack_from("<Q", data, header + 32)
        if kind == PT_DYNAMIC:
            for entry in range(offset, offset + size, 16):
                if struct.unpack_from("<q", data, entry)[0] in (DT_RPATH, DT_RUNPATH):
                    yield entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=CLONE / "build" / "binary")
    parser.add_argument("--level", type=int, default=15)
    parser.add_argument("--parts", type=Path, help="where to tell what of this machine is in it")
    options = parser.parse_args()
    work = options.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    root = work / "root"
    root.mkdir(parents=True)
    interpreter = copy_interpreter(root)
    install_packages(root, options.wheel.resolve())
    libraries = copy_libraries(root)
    forget_search_paths(root)
    archive.compile_sources(root, root / "lib" / PYTHON)
    stub = work / "stub"
    run("cc", "-O2", "-Wall", "-static", "-s", "-o", stub, HERE / "stub.c", "-lzstd")
    libraries += [Path(run("cc", f"-print-file-name={name}").strip()) for name in IN_THE_STUB]
    if options.parts is not None:
        import pip

        told = parts.parts(interpreter, libraries, pip.__version__)
        options.parts.write_text(json.dumps(told, indent=1) + "\n")
    archive.write(options.output, stub.read_bytes(), root, options.level)
    sys.stdout.write(archive.told(options.output, root))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
