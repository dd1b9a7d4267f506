"""A child of the supervisor ends when the supervisor does."""

import os
import subprocess
import sys

from appliance.supervisor.process import PARENT_FD_VARIABLE

CHILD = """
import signal, sys
from appliance.child import end_with_parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
end_with_parent()
print("there", flush=True)
while True:
    signal.pause()
"""


def test_it_ends_with_its_parent_though_another_child_made_their_pipe_non_blocking() -> None:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        pass_fds=(readable,),
        env={**os.environ, PARENT_FD_VARIABLE: str(readable)},
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        os.write(writable, b"x")
        assert child.poll() is None
        os.close(writable)
        assert child.wait(60) == 7
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        os.close(readable)
