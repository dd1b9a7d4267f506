"""``python -m broker``: one broker process. Started by ``odradek serve`` or by hand.

Settings come from ``broker.properties`` in the data directory (an adopted one has it), ``--config
FILE`` (Java properties too), ``--property key=value``, then the other options, later ones being
stronger. Prints ``ready HOST:PORT`` on standard output once clients are served; ends cleanly on
SIGTERM or SIGINT, or when the parent that is named by ODRADEK_PARENT_FD (the read end of a pipe)
has gone.
"""

from __future__ import annotations

import gc
import sys

from broker import compiled


def main() -> int:
    # kio registers strategies for property tests wherever hypothesis is installed: 0.2 s of the
    # start and 17 MB that no broker needs.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    # Imports make objects that stay: looking for garbage among them only takes time.
    gc.disable()
    compiled.install()
    from broker.server.main import serve

    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
