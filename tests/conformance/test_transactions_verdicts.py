"""Every request in every state of a transaction that rests, and repeated: what Apache Kafka says is said here.

What is said amid an end is in test_transactions_held.py.
"""

from __future__ import annotations

import json

import pytest

from tests.golden.transaction_verdicts import STATES, VERDICTS, verdicts
from tests.support.routing import shared_site
from tests.support.wire import Wire

broker = shared_site()


@pytest.mark.parametrize("state", STATES)
def test_every_request_in_every_state(wire: Wire, state: str) -> None:
    found = {f"{state}: {name}": told for name, told in verdicts(wire, state).items()}
    known = json.loads(VERDICTS.read_text())
    assert found == {each: known[each] for each in found}
