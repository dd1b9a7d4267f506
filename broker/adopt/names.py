"""Names that an adoption gives to things in a data directory."""

from __future__ import annotations

from typing import Final

#: While it exists an adoption is not finished, and no broker may start here.
STAGING: Final = "adopting"
#: What was adopted, for whoever asks later.
REPORT: Final = "adopted.json"
#: In the staging directory: what is being done.
PLAN: Final = "plan.json"
LOGS: Final = "logs"
METADATA: Final = "metadata"
#: The broker's own lock on its data directory (``server.data_directory``).
DATA_LOCK: Final = "broker.lock"
#: Settings of a data directory; ``python -m broker`` reads them before all others.
SETTINGS: Final = "broker.properties"
