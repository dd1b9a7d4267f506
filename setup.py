"""What pyproject.toml cannot say: a wheel carries pages, static files, facts about its build, and the compiled
hot path where there is one. An editable installation needs none of it: the clone has everything."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

CLONE = Path(__file__).resolve().parent
sys.path.insert(0, str(CLONE))

from broker import compiled  # noqa: E402 - the clone's own


class BuildPython(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        appliance = Path(self.build_lib, "appliance")
        for name in ("templates", "static"):
            shutil.rmtree(appliance / "share" / name, ignore_errors=True)
            shutil.copytree(CLONE / name, appliance / "share" / name)
        (appliance / "build_facts.json").write_text(json.dumps({"commit": _commit()}) + "\n")
        if compiled.is_current():
            build = Path("broker", "compiled", "build", compiled.BUILD_DIRECTORY.name)
            shutil.rmtree(Path(self.build_lib, build), ignore_errors=True)
            shutil.copytree(CLONE / build, Path(self.build_lib, build))


class MaybeCompiled(Distribution):
    """A wheel with machine code in it fits one Python on one kind of machine."""

    def has_ext_modules(self) -> bool:
        return compiled.is_current()


def _commit() -> str | None:
    """None outside of a clone that is not told; ``+`` behind it: files that git knows were changed."""
    if told := os.environ.get("ODRADEK_BUILD_COMMIT"):
        return told
    command = ["git", "-C", str(CLONE), "describe", "--always", "--abbrev=12", "--dirty=+"]
    if not (CLONE / ".git").exists():
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None


setup(cmdclass={"build_py": BuildPython}, distclass=MaybeCompiled)
