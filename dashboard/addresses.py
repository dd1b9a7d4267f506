"""Whose request it is: the client's address, right behind reverse proxies too.

``trusted_proxies`` says how many proxies of ours stand before the web process; each adds one entry to
``X-Forwarded-For``. So the entry that many places from the right was written by the outermost of
them and can be believed; whatever stands left of it came from the client and may be a lie.
"""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

LOCKOUT_IPV6_PREFIX = 64
"""One customer of a provider has at least this network: its addresses are one client."""


def client_address(request: HttpRequest) -> str:
    """The client's address as the outermost trusted proxy saw it; empty over a unix socket."""
    count = int(settings.ODRADEK_TRUSTED_PROXIES)
    if count:
        entries = request.headers.get("X-Forwarded-For", "").split(",")
        # Fewer entries than proxies: it did not come through all of them.
        if len(entries) >= count and (address := _address(entries[-count])):
            return address
    return _address(str(request.META.get("REMOTE_ADDR") or "")) or ""


def lockout_address(request: HttpRequest) -> str | None:
    """The address that failed sign-ins are counted by: of IPv6 the network."""
    found = client_address(request)
    if ":" not in found:
        return found or None
    network = ipaddress.ip_network((found, LOCKOUT_IPV6_PREFIX), strict=False)
    return str(network.network_address)


def is_behind_unknown_proxy(request: HttpRequest) -> bool:
    """A proxy forwards, but none is configured: everybody seems to come from its address."""
    return not settings.ODRADEK_TRUSTED_PROXIES and "X-Forwarded-For" in request.headers


def _address(text: str) -> str | None:
    """The address alone: some proxies write its port too. IPv4 within IPv6 is IPv4."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
