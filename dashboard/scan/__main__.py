"""``python -m dashboard.scan``: see the package."""

import sys

from dashboard.scan.child import main

sys.exit(main())
