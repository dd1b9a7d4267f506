"""Our broker with a recovery that takes its time: `python -m tests.support.held_broker FILE …`.

While FILE exists, recovery stands still and says that 3 of 7 logs are open.
"""

import sys
import time
from pathlib import Path
from typing import Any

from broker.server.main import serve
from broker.storage.log_manager import LogManager


def hold(switch: Path) -> None:
    open_logs = LogManager.open

    def held(self: LogManager, *arguments: Any, **options: Any) -> None:
        options["progress"](3, 7)
        while switch.exists():
            time.sleep(0.01)
        open_logs(self, *arguments, **options)

    LogManager.open = held  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    hold(Path(sys.argv[1]))
    sys.exit(serve(sys.argv[2:]))
