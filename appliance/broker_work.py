"""Long work that is the broker's own, in a child process that says how far it is in lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def spoken(module: str, arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What ``python -m module`` says, line by line; its own error output goes where ours goes."""
    command_line = [sys.executable, "-P", "-m", module, *arguments]
    with subprocess.Popen(
        command_line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            found = json.loads(line)
            assert isinstance(found, dict), line
            yield found
