"""Jars of judges, by Maven."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path


def copy_dependencies(pom: Path, libs: Path) -> Path:
    """The directory of what `pom` names, filled if it is not there. Raises when it cannot be."""
    if not libs.is_dir():
        libs.parent.mkdir(parents=True, exist_ok=True)
        partial = libs.with_name(f"{libs.name}.{os.getpid()}.partial")
        try:
            subprocess.run(
                [
                    *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
                    *("-DincludeScope=runtime", f"-DoutputDirectory={partial}"),
                ],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=900,
            )
            with contextlib.suppress(OSError):  # another process was faster
                partial.rename(libs)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return libs
