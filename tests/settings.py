"""Django's settings for tests in this process: the appliance's own, with data in a directory of the run."""

import atexit
import os
import shutil
import tempfile


def _make_directory() -> str:
    """A directory of this run; gone with the process that made it, not with its children."""
    directory = tempfile.mkdtemp(prefix="odradek-tests-")
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


# Processes side by side have a directory each; the first one's comes to the others by the environment.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if "ODRADEK_DATA" not in os.environ or os.environ.get("TESTS_DATA_WORKER", _WORKER) != _WORKER:
    os.environ["ODRADEK_DATA"] = _make_directory()
    os.environ["TESTS_DATA_WORKER"] = _WORKER

from appliance.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A file, as the appliance's own is: threads of a database in memory lock each other's tables out.
DATABASES["default"]["TEST"] = {  # noqa: F405
    "NAME": os.path.join(os.environ["ODRADEK_DATA"], "test.db")
}
