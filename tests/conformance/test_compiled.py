"""The broker runs compiled where a build is there, interpreted on request, and is the same broker."""

from pathlib import Path

import pytest

from broker import compiled
from tests.support import requests
from tests.support.odradek import OdradekBroker
from tests.support.wire import Wire


@pytest.mark.parametrize("switch", ["1", "0"])
def test_records_pass_through_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(compiled.SWITCH, switch)
    with OdradekBroker(tmp_path) as broker, Wire(broker.address) as wire:
        wanted = switch == "1" and compiled.is_current()
        assert broker.control("stats")["is_compiled"] is wanted
        name = requests.create_topic(wire)
        requests.produce_values(wire, name, [b"a", b"b"])
        assert [record.value for record in requests.read_all(wire, name)] == [b"a", b"b"]
        broker.stop()
