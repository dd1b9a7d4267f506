"""The one cluster that this dashboard shows: its gateway, shared by all threads of the process."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from dashboard.gateway import Gateway
from dashboard.probe import join_address, reachable, split_address

PAGE_TIMEOUT_S = 5.0
"""A change asked for on a page may take this long; reading pages use snapshots."""


def bootstrap() -> str:
    """Where the cluster is asked: as configured, or the broker of this node."""
    if settings.ODRADEK_CLUSTER:
        return str(settings.ODRADEK_CLUSTER)
    return join_address(*reachable(*split_address(settings.ODRADEK_LISTEN)))


def properties() -> dict[str, str]:
    """Properties of librdkafka for reaching the cluster."""
    return dict(settings.ODRADEK_CLIENT_PROPERTIES)


@cache
def gateway() -> Gateway:
    """For changes and for single questions of a page."""
    return new_gateway(PAGE_TIMEOUT_S)


def new_gateway(timeout_s: float) -> Gateway:
    return Gateway(bootstrap(), properties(), timeout_s=timeout_s)
