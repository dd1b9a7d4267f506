"""`pytest -p tests.support.on_compiled`: the tests import the compiled modules, not their sources.

Left out are tests marked `interpreted`: they put doubles or other constants where compiled code
has its own.
"""

import pytest

from broker import compiled

_reason = compiled.install()
if _reason is not None:
    raise pytest.UsageError(f"the compiled modules cannot be tested: {_reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip("only the sources can be tested so"))
