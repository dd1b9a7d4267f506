"""Messages that two threads ask for at once, as the loop and the preloading of a start do."""

import subprocess
import sys

from tests.support.odradek import REPOSITORY

TWO_THREADS = """
import sys, threading
from broker.protocol import schema
from broker.protocol.api_versions import SERVED

sys.setswitchinterval(1e-6)
failures, start = [], threading.Barrier(2)

def ask(first, second):
    start.wait()
    for api_key, api_range in SERVED.items():
        for type_of in (first, second):
            try:
                type_of(api_key, api_range.max_version)
            except Exception as error:
                failures.append(repr(error))

ways = (schema.request_type, schema.response_type)
threads = [threading.Thread(target=ask, args=way) for way in (ways, ways[::-1])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(str(failures) if failures else 0)
"""


def test_two_threads_import_one_version_from_both_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_THREADS], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
