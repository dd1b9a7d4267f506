"""``python -m appliance``: the ``odradek`` command where its script is not installed."""

import sys

from appliance.cli import main

if __name__ == "__main__":
    sys.exit(main())
