"""Scripts run with an appliance's Django: it is loaded once, and each script is a fork of that."""

import json
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path

_SERVE = """
import contextlib, io, json, os, sys, traceback
import django
django.setup()
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    code, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        failure, output = "", io.StringIO()
        sys.argv = ["-c", *arguments]
        try:
            with contextlib.redirect_stdout(output):
                exec(code, {"__name__": "__main__"})
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps([failure, output.getvalue()]), file=answers, flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(json.dumps([f"it ended with {status}", ""]), file=answers, flush=True)
"""


class DjangoScripts:
    """No connection is made before a script is: what one did to its process the next does not see."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self.environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            cwd=directory,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, code: str, arguments: tuple[str, ...], timeout: float) -> str:
        """What it printed; AssertionError with its traceback when it failed."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps([code, *arguments]).encode() + b"\n")
        requests.flush()
        if not wait([answers], timeout):
            self.close()
            raise TimeoutError(f"a script took more than {timeout} s:\n{code}")
        line = answers.readline()
        assert line, "the process that runs scripts has ended"
        failure, output = json.loads(line)
        assert not failure, failure
        return str(output)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
