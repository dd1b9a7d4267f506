"""What a start loads: every module that the first answer can do without is time until then."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

#: Each brought in by something small, and dear: parsers of mail and archives, OpenSSL's digests, the
#: test library that kio would register with, messages that nobody has asked for yet, what only a
#: cluster needs.
NOT_LOADED = (
    *("email", "importlib.metadata", "hashlib", "difflib", "hypothesis", "kio.schema.fetch"),
    *("kazoo", "broker.server.cluster.membership"),
)


def test_a_start_loads_nothing_that_the_first_answer_can_do_without() -> None:
    program = (
        "import sys; from broker import compiled; sys.modules['hypothesis'] = None;"
        " compiled.install(); import broker.server.main;"
        " print(*[name for name, module in sys.modules.items() if module is not None])"
    )
    # Without a build: one of other sources would be compared by its digest.
    environment = {**os.environ, "ODRADEK_COMPILED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.split()
    assert "broker.server.app" in loaded
    assert [name for name in NOT_LOADED if name in loaded] == []
