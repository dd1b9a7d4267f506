"""Takes out of an installation what no start needs: packages that only build, tests, pages in other languages.

    python packaging/trimming.py DIRECTORY/lib/python3.11/site-packages [PACKAGE]...

Packages that are named go too. For the single executable and for the container image, where every megabyte is carried along.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: In the lock file for the sake of building alone (requirements-build.in).
OF_THE_BUILD = ("mypy", "setuptools", "ast_serialize", "pathspec")
#: Of command lines that other packages bring along: Celery's shell, an evaluator's.
OF_OTHER_PROGRAMS = (
    *("typer", "rich", "pygments", "markdown_it_py", "mdurl", "shellingham"),
    *("click_repl", "prompt_toolkit", "wcwidth"),
)
LEFT_OUT = (
    "__pycache__",
    "tests",
    "twisted/**/test",
    "autobahn/**/test",
    "*.pyi",
    "*.dist-info/RECORD",
    "*.pyx",
    "*.js.map",
    "autobahn/_flatc",
)
#: Of Twisted: servers for other protocols, and its own test runner. Out of the image alone, which is close to its bound.
OUT_OF_THE_IMAGE = ("conch", "mail", "names", "pair", "positioning", "trial", "words")


def trim(packages: Path, *more: str) -> None:
    for name in (*OF_THE_BUILD, *OF_OTHER_PROGRAMS, *more):
        _remove_package(packages, name)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    # Pages are in English, and USE_I18N is off.
    patterns = [*LEFT_OUT, *(f"django/**/locale/{name}" for name in _languages(packages))]
    for pattern in patterns:
        for path in list(packages.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    _remove_empty(packages)
    _strip(packages)


def _remove_empty(packages: Path) -> None:
    """Directories of packages that went, the innermost first."""
    for path in sorted(packages.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _strip(packages: Path) -> None:
    """Modules lose what debuggers want. Libraries beside them (`*.libs`) were given other paths, which strip
    does not understand."""
    for path in packages.rglob("*.so"):
        if not path.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)  # noqa: S603, S607


def _languages(packages: Path) -> list[str]:
    found = (packages / "django" / "conf" / "locale").glob("*/LC_MESSAGES")
    return sorted(path.parent.name for path in found if not path.parent.name.startswith("en"))


def _remove_package(packages: Path, name: str) -> None:
    """What its list of files names; another package of the same directory keeps its own."""
    for listed in packages.glob(f"{name}-*.dist-info/RECORD"):
        for line in listed.read_text().splitlines():
            (packages / line.split(",")[0]).unlink(missing_ok=True)
        shutil.rmtree(listed.parent)


if __name__ == "__main__":
    for name in OUT_OF_THE_IMAGE:
        shutil.rmtree(Path(sys.argv[1]) / "twisted" / name)
    trim(Path(sys.argv[1]), *sys.argv[2:])
