"""The tables of handlers against the table of what is served."""

from __future__ import annotations

from broker.protocol.api_versions import SERVED, ApiKey
from broker.server.handlers import HANDLERS, HOT_HANDLERS


def test_every_served_api_has_one_handler_and_no_other_has() -> None:
    assert set(HANDLERS) | set(HOT_HANDLERS) == set(SERVED)
    assert not set(HANDLERS) & set(HOT_HANDLERS)


def test_keys_are_those_of_the_protocol() -> None:
    assert all(key in set(ApiKey) for key in (*HANDLERS, *HOT_HANDLERS))
