"""Our broker on a disk that turns slow: `python -m tests.support.slow_broker FILE …` (its options).

While FILE exists, no page of a file is in memory until it was pulled, each pull takes as many
seconds as FILE says, and what was pulled is forgotten a second later. Writing is as fast as ever.
"""

import sys
import time
from pathlib import Path

from broker.server.main import serve
from broker.storage import filesystem

KEPT_SECONDS = 1.0


def slow_down(switch: Path) -> None:
    kind = filesystem.RealFile
    pull, peek, is_resident = kind.pull, kind.peek, kind.is_resident
    pulled: dict[str, float] = {}

    def is_warm(file: filesystem.RealFile) -> bool:
        age = time.monotonic() - pulled.get(str(file.path), -KEPT_SECONDS)
        return age < KEPT_SECONDS or not switch.exists()

    def slow_pull(file: filesystem.RealFile, position: int, length: int) -> None:
        if switch.exists():
            time.sleep(float(switch.read_text()))
        pull(file, position, length)
        pulled[str(file.path)] = time.monotonic()

    def slow_peek(file: filesystem.RealFile, length: int, position: int) -> bytes | None:
        return peek(file, length, position) if is_warm(file) else None

    def slow_is_resident(file: filesystem.RealFile, position: int, length: int) -> bool:
        return is_warm(file) and is_resident(file, position, length)

    kind.pull, kind.peek, kind.is_resident = slow_pull, slow_peek, slow_is_resident


if __name__ == "__main__":
    slow_down(Path(sys.argv[1]))
    sys.exit(serve(sys.argv[2:]))
